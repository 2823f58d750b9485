// The Python code that a result carries for stock loaders, and where loaders would misread it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/families/loader_files.h"
#include "formats/spec/model_spec.h"

namespace regroup {

// Where stock loaders would compute something different from regroup, because they derive it from
// the config and the head index while regroup uses recorded values.

/// Sentences about what a stock loader would derive differently from `spec`: ALiBi slopes, from the
/// family's formula. Empty if there is no difference.
std::vector<std::string> derived_otherwise(const ModelSpec& spec);

/// The same, but also empty if the names in `config` prevent stock loaders from loading the model.
/// Always empty for results that regroup writes, because of keep_from_stock_loaders().
std::vector<std::string> misread_by_loaders(const ModelSpec& spec, const Json& config);

// The Python code by which transformers loads results whose kv heads its own classes do not
// support.

struct LoaderCode {
  Json auto_map;                  ///< for config.json: "AutoModel" and the like to "module.Class"
  std::vector<LoaderFile> files;  ///< to be written next to it; the family's is the last
};

/// The code for the model of `config` (after renaming, see with_alibi_names()) and `spec`. Nothing
/// if there is none for its family, if it would compute something different from `spec`, or if only
/// heads that differ between layers need it.
std::optional<LoaderCode> loader_code_for(const Json& config, const ModelSpec& spec);

/// Whether an entry of auto_map is for models or their configs: not for the tokenizer, say.
bool is_for_models(std::string_view auto_class);

/// Whether the auto_map of `config` names such code: a module of loader_files(), in the directory
/// or in a repository. Whether the directory has it, code_in() says
/// (formats/families/foreign_code.h).
bool has_loader_code(const Json& config);

/// Whether its auto_map names other code for models or configs: the model's own.
bool has_own_code(const Json& config);

/// `config_text` with the code's auto_map in place of all entries for models and configs. Entries
/// for other things, such as the tokenizer, stay.
std::string with_loader_code(const std::string& config_text, const LoaderCode& code);

/// `config_text` without entries for such code, and with the architecture's own name, which
/// transformers replaces by the name of the code's class when it saves a model.
std::string without_loader_code(const std::string& config_text);

}  // namespace regroup

// The model card of a result: README.md, as Hugging Face shows it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "formats/base/json.h"
#include "formats/families/loader_code.h"
#include "formats/model/conversion_record.h"
#include "formats/model/model.h"

namespace regroup {

/// README.md of a model with this config.json and spec: `metadata` (lasting_metadata(), extended by
/// library and tags), what the record in `config` says was done and measured, how to load it, and
/// what `code` its directory has. Empty if `config` has no such record. Text from files is used
/// only where it is a plain word.
std::string model_card(const Json& config, const ModelSpec& spec, std::string_view metadata,
                       const DirectoryCode& code = {});

/// Writes the card of a result made from `source` into `directory`, which has the result's other
/// files. A README.md that was copied from `source` gets the name README.source.md, or if there is
/// one README.source-2.md and so on. It is dropped if it is an unchanged card by this function and
/// the new one says the same and more, as after training.
void write_model_card(const Model& source, const std::filesystem::path& directory,
                      const std::string& config_text, const ModelSpec& spec);

/// Replaces config.json in `directory`, which has a result that is not published yet, and writes
/// the card again.
void rewrite_record(const std::filesystem::path& directory, const ModelSpec& spec,
                    const std::string& config_text);

}  // namespace regroup

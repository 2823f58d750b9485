// The language model inside a vision or audio model, such as LLaVA's Llama: its part of the config
// and its tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

struct LanguagePart {
  std::string whole_model;        ///< model_type of the whole model
  std::vector<std::string> path;  ///< of the language model's object in config.json
  /// That object as a config of the language model alone: its model_type is a family's, and it has
  /// the values that the whole model's config class uses where the object has none.
  Json config;
  std::string not_computable;  ///< why text alone cannot be computed; empty if it can
};

/// The language model in a config of no known family. None if the config has no object for it, and
/// is none of the whole models that keep its keys at the top. Throws kBadInput if the object names
/// no model_type that is known.
std::optional<LanguagePart> find_language_part(const ModelConfig& config);

/// The language model's tensors of the checkpoint, under the names that they have in a language
/// model alone. Without files: they can be looked up but not read. Throws kBadInput if there are
/// none, unless the checkpoint has no files.
Checkpoint tensors_of_language_part(const ModelConfig& config);

/// `spec`, which describes the language model alone, as a part of the whole model: with the names
/// in the checkpoint and the paths in the whole config.
ModelSpec as_part(ModelSpec spec, const LanguagePart& part, const ModelConfig& config);

}  // namespace regroup

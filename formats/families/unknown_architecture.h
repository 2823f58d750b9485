// What is refused: unknown architectures, and weights that are quantised in other ways.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/spec/config_reader.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// Checkpoints whose weights are quantised, in the ways that transformers reads.

/// The members of a config that say that weights are quantised: paths such as
/// {"quantization_config"} or {"text_config", "quantization_config"}.
std::vector<std::vector<std::string>> quantisation_members(const Json& config);

/// Throws kBadInput, saying what to use instead, if the weights are quantised: by
/// names that only quantised checkpoints have, or, if the config says that they are quantised, by
/// matrices of integers or 8-bit floats. Otherwise returns a sentence per such member of the
/// config: it is wrong, or, in a checkpoint without tensors, cannot be checked.
std::vector<std::string> check_quantisation(const ModelConfig& config);

// What to say about a config of no known family.

/// Model types whose attention has no heads of keys and values that queries could share, or whose
/// other parts are not computed, and the reason.
struct OtherAttention {
  std::vector<std::string_view> model_types;
  std::vector<std::string_view> config_keys;  ///< any of them shows such a model as well
  std::string_view reason;
};
std::span<const OtherAttention> other_attentions();

/// The error message for a config with this model_type and architecture (either may be empty), at
/// most 160 bytes after the file's name: why grouping does not apply, otherwise the nearest of
/// `known` model types and the option that describes the model.
std::string refusal_of_architecture(const ConfigReader& config, std::string_view model_type,
                                    std::string_view architecture,
                                    const std::vector<std::string>& known);

}  // namespace regroup

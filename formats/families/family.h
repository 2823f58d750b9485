// The families regroup knows. Adding one: its file here, one row in registry.cpp, its tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The spec of the model that `config` describes, with the names its tensors have in `checkpoint`.
/// `where` (the config's file name) opens error messages. Throws kBadInput for an unknown
/// architecture (listing the known ones) and for missing or impossible config values. Tensor shapes
/// are checked by check_attention_shapes() and check_all_shapes(), not here.
ModelSpec describe_model(const Json& config, const Checkpoint& checkpoint, std::string_view where);

/// `config_text` under a model_type and architecture of regroup's own, "regroup_alibi_llama", and
/// without the "auto_map" to code of the model's own: a stock loader would compute the positions
/// the model had, or slopes by a head's place, so it must not know the name. describe_model() knows
/// it and makes the family an ALiBi model, with the recorded slopes.
std::string with_alibi_names(const std::string& config_text);

/// Whether `config` has such names, which stock loaders refuse.
bool has_alibi_names(const Json& config);

/// Reads the ALiBi slopes that an earlier conversion recorded in `config`, if it did. Throws
/// kBadInput where they are no list of numbers.
void read_recorded_slopes(ModelSpec& spec, const Json& config, std::string_view where);

/// Architectures that describe_model() accepts, for messages.
std::vector<std::string_view> known_architectures();

/// The architecture of a config's model_type; empty for an unknown one.
std::string_view architecture_of_model_type(std::string_view model_type);

/// regroup's name for the family of an architecture; "unknown" if there is none.
std::string_view family_of_architecture(std::string_view architecture);

/// Throws kBadInput listing together all attention tensors that are missing or whose shape
/// disagrees with `spec`.
void check_attention_shapes(const ModelSpec& spec, const Checkpoint& checkpoint);

/// The same for every tensor the model computes with.
void check_all_shapes(const ModelSpec& spec, const Checkpoint& checkpoint);

/// Every tensor the model computes with and the shape it must have, fused tensors once.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};
std::vector<ExpectedTensor> expected_attention_tensors(const ModelSpec& spec);
std::vector<ExpectedTensor> expected_tensors(const ModelSpec& spec);

}  // namespace regroup

// The tensors of an attention, by role, and those that a layout file forgot.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// The tensors of an attention. Roles are named as in layout files: "q", "q_bias", "qkv", "k_norm".
/// Absent tensors are omitted.
std::vector<std::pair<std::string_view, std::string>> tensors_by_role(
    const AttentionLayout& attention);

/// A sentence about the first tensor that has two roles, or the same role in two layers; empty if
/// there is none.
std::string tensor_named_twice(const ModelSpec& spec);

/// Finds a tensor in `checkpoint` that would no longer fit after conversion: `target` has fewer kv
/// heads than `source`, the tensor's name shows that it belongs to the keys, it has one number per
/// key feature (such as norm weights), but neither spec names it. Null if there is none.
const TensorInfo* forgotten_tensor_of_keys(const ModelSpec& source, const ModelSpec& target,
                                           const Checkpoint& checkpoint);

}  // namespace regroup

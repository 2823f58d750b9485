// The tensors that a description of attention names, by the role each has in it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// As layout files call the roles: "q", "q_bias", "qkv", "k_norm". What is absent is left out.
std::vector<std::pair<std::string_view, std::string>> tensors_by_role(
    const AttentionLayout& attention);

/// A sentence about the first tensor that has two roles, or one role in two layers; empty where
/// there is none.
std::string tensor_named_twice(const ModelSpec& spec);

/// A tensor of `checkpoint` that lies beside keys of which `target` has fewer heads than `source`,
/// goes by their name and has one number for each of their features, such as the weights of a norm,
/// but is in neither spec: it would no longer fit them. Null where there is none.
const TensorInfo* forgotten_tensor_of_keys(const ModelSpec& source, const ModelSpec& target,
                                           const Checkpoint& checkpoint);

}  // namespace regroup

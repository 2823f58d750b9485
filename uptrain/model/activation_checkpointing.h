// Activation checkpointing: what a function computes on the way is not kept for the gradients but
// computed again. Chen et al. 2016, https://arxiv.org/abs/1604.06174.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Tensors made of `inputs`, and of weights.
using TensorFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// function(inputs), with gradients for the inputs and for `weights`, which are all the leaves that
/// the function uses. Of what it computes nothing stays in memory but the results: it is called
/// once more when the gradients are asked for, so what it refers to must live until then. Inputs
/// may be undefined.
std::vector<at::Tensor> recompute_for_gradients(const TensorFunction& function,
                                                const std::vector<at::Tensor>& inputs,
                                                const std::vector<at::Tensor>& weights);

}  // namespace regroup

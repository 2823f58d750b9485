// Activation checkpointing: intermediate results are not kept for the backward pass but recomputed.
// Chen et al. 2016, https://arxiv.org/abs/1604.06174.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace regroup {

/// A function of `inputs` and of weights.
using TensorFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// function(inputs), with gradients for the inputs and for `weights`, which must be all the leaves
/// that the function uses. Only the results stay in memory. The backward pass calls the function
/// again, so everything it refers to must live until then. Inputs may be undefined.
std::vector<at::Tensor> recompute_for_gradients(const TensorFunction& function,
                                                const std::vector<at::Tensor>& inputs,
                                                const std::vector<at::Tensor>& weights);

}  // namespace regroup

#include "uptrain/gradients.h"

#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/autograd.h>

namespace regroup {
namespace {

at::Tensor widened(const at::Tensor& gradient) {
  return gradient.scalar_type() == at::kDouble ? gradient : gradient.to(at::kFloat);
}

}  // namespace

GradientSum::GradientSum(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {}

void GradientSum::add(const at::Tensor& loss) {
  std::vector<at::Tensor> gradients = torch::autograd::grad({loss}, parameters_);
  if (!sums_.empty()) {
    at::_foreach_add_(sums_, gradients);  // widens them as it goes
    return;
  }
  for (at::Tensor& gradient : gradients) {
    gradient = widened(gradient);  // one by one, so that not all are there twice
  }
  sums_ = std::move(gradients);
}

at::Tensor global_norm(const std::vector<at::Tensor>& tensors) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors, 2)), 2);
}

}  // namespace regroup

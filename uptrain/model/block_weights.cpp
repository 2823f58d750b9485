#include "uptrain/model/block_weights.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Direction = BlockWeights::Direction;

bool has_backward_pass(const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad();
}

// Remembers which block a node of the graph belongs to.
void remember(AutogradContext* context, BlockWeights* weights, std::int64_t block) {
  context->saved_data["weights"] = reinterpret_cast<std::int64_t>(weights);
  context->saved_data["block"] = block;
}

BlockWeights& weights_of(AutogradContext* context) {
  return *reinterpret_cast<BlockWeights*>(context->saved_data["weights"].toInt());
}

std::size_t block_of(AutogradContext* context) {
  return static_cast<std::size_t>(context->saved_data["block"].toInt());
}

// Nodes of the graph run in the reverse order in which they were made, as far as they are ready.
// That of a block's input is older than all of the block's, so the block's gradients are complete.
struct Entry : torch::autograd::Function<Entry> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, BlockWeights* weights,
                            std::int64_t block) {
    remember(context, weights, block);
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    weights_of(context).drop(block_of(context), Direction::kBackward, /*again=*/false);
    return {outer[0], at::Tensor(), at::Tensor()};
  }
};

struct Exit : torch::autograd::Function<Exit> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, BlockWeights* weights,
                            std::int64_t block) {
    remember(context, weights, block);
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    weights_of(context).bring(block_of(context), Direction::kBackward);
    return {outer[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor enter_block(BlockWeights& weights, std::size_t block, const at::Tensor& x) {
  weights.bring(block, Direction::kForward);
  return has_backward_pass(x) ? Entry::apply(x, &weights, static_cast<std::int64_t>(block)) : x;
}

at::Tensor leave_block(BlockWeights& weights, std::size_t block, const at::Tensor& x) {
  const bool again = has_backward_pass(x);
  weights.drop(block, Direction::kForward, again);
  return again ? Exit::apply(x, &weights, static_cast<std::int64_t>(block)) : x;
}

}  // namespace regroup

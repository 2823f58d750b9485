#include "uptrain/trainer/gradients.h"

#include <memory>
#include <optional>
#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace regroup {
namespace {

at::Tensor widened(const at::Tensor& gradient) {
  return gradient.scalar_type() == at::kDouble ? gradient : gradient.to(at::kFloat);
}

// LibTorch's CPU kernel adds squares one by one in fp32. For a tensor of 10⁸ elements its norm is 1
// % too small, for a part 10⁻⁶.
std::vector<at::Tensor> in_parts(const std::vector<at::Tensor>& tensors) {
  constexpr std::int64_t kPart = std::int64_t{1} << 18;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) {
    for (at::Tensor& part : tensor.reshape({-1}).split(kPart)) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

// Takes a leaf's gradient as soon as a backward pass has accumulated it. A hook on the gradient
// would also see partial gradients from the nested backward passes of activation checkpointing.
struct Handover : torch::autograd::PostAccumulateGradHook {
  explicit Handover(std::function<void(at::Tensor)> taker) : take(std::move(taker)) {}

  void operator()(const at::Tensor& leaf) override {
    take(std::exchange(leaf.mutable_grad(), at::Tensor()));
  }

  std::function<void(at::Tensor)> take;
};

// Hands over the gradients of these leaves as long as the object exists.
class WatchedLeaves {
 public:
  WatchedLeaves(const std::vector<at::Tensor>& leaves, const SumTaker& take) : leaves_(leaves) {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          leaves[i], std::make_unique<Handover>(
                         [&take, i](at::Tensor gradient) { take(i, std::move(gradient)); }));
    }
  }
  WatchedLeaves(const WatchedLeaves&) = delete;
  WatchedLeaves& operator=(const WatchedLeaves&) = delete;
  ~WatchedLeaves() {
    for (const at::Tensor& leaf : leaves_) {
      torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
    }
  }

 private:
  const std::vector<at::Tensor>& leaves_;
};

}  // namespace

GradientSum::GradientSum(std::vector<at::Tensor> parameters, GradientType type)
    : parameters_(std::move(parameters)), type_(type) {}

void GradientSum::add(const at::Tensor& loss) {
  if (!sums_.empty()) {
    TORCH_CHECK(type_ == GradientType::kWide, "narrow gradients are not summed");
    // Widens them while adding.
    at::_foreach_add_(sums_, torch::autograd::grad({loss}, parameters_));
    return;
  }
  // One at a time, so that not all exist twice: autograd's thread may hold what grad() returns for
  // a while.
  std::vector<at::Tensor> sums(parameters_.size());
  differentiate(loss, [&](std::size_t parameter, const at::Tensor& gradient) {
    sums[parameter] = completed(gradient);
  });
  sums_ = std::move(sums);
}

void GradientSum::add_last(const at::Tensor& loss, const SumTaker& take) {
  differentiate(loss, [&](std::size_t parameter, const at::Tensor& gradient) {
    if (sums_.empty()) {
      take(parameter, completed(gradient));
    } else {
      take(parameter, std::exchange(sums_[parameter], at::Tensor()).add_(gradient));
    }
  });
  sums_.clear();
}

// Passes each parameter's gradient to `take` as soon as it is complete, in autograd's thread.
void GradientSum::differentiate(const at::Tensor& loss, const SumTaker& take) const {
  std::size_t missing = parameters_.size();
  const SumTaker count = [&](std::size_t parameter, at::Tensor gradient) {
    --missing;
    take(parameter, std::move(gradient));
  };
  const WatchedLeaves watched(parameters_, count);
  torch::autograd::backward({loss}, {}, /*retain_graph=*/false, /*create_graph=*/false,
                            parameters_);
  TORCH_CHECK(missing == 0, missing, " of the parameters were not used for the loss");
}

// The first gradient of a sum.
at::Tensor GradientSum::completed(const at::Tensor& gradient) const {
  return type_ == GradientType::kWide ? widened(gradient) : gradient;
}

at::Tensor global_norm(const std::vector<at::Tensor>& tensors) {
  const bool narrow = tensors.front().scalar_type() == at::kBFloat16;
  const auto type = narrow ? std::optional(at::kFloat) : std::nullopt;
  const bool on_host = tensors.front().is_cpu();
  const at::Tensor norms =
      at::stack(at::_foreach_norm(on_host ? in_parts(tensors) : tensors, 2, type));
  return at::linalg_vector_norm(norms, 2, {}, false, on_host ? std::optional(at::kDouble) : type)
      .to(norms.scalar_type());
}

}  // namespace regroup

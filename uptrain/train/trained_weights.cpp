#include "uptrain/train/trained_weights.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "uptrain/model/device.h"
#include "uptrain/ops/attention.h"

namespace regroup {

namespace {

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

at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(true));
}

// In the order of TrainedWeights.
constexpr std::string_view kTrainedNames[] = {"all", "attention", "kv"};

// The output features of a fused tensor that belong to query heads.
at::Tensor query_features(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  const HeadFeatures heads = head_features(spec.attention(role, layer).packing, spec.query_heads,
                                           spec.kv_heads_of(role)[layer], spec.head_dim);
  std::vector<std::int64_t> index;
  for (const std::int64_t first : heads.q) {
    index.resize(index.size() + static_cast<std::size_t>(spec.head_dim));
    std::iota(index.end() - spec.head_dim, index.end(), first);
  }
  return at::tensor(index, at::kLong);
}

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
  using torch::autograd::impl::set_post_acc_grad_hooks;
  std::size_t missing = parameters_.size();
  const auto unwatch = c10::make_scope_exit([&] {
    for (const at::Tensor& leaf : parameters_) {
      set_post_acc_grad_hooks(leaf, nullptr);
    }
  });
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    set_post_acc_grad_hooks(parameters_[i], std::make_unique<Handover>([&, i](at::Tensor gradient) {
                              --missing;
                              take(i, std::move(gradient));
                            }));
  }
  torch::autograd::backward({loss}, {}, /*retain_graph=*/false, /*create_graph=*/false,
                            parameters_);
  TORCH_CHECK(missing == 0, missing, " of the parameters were not used for the loss");
}

// The first gradient of a sum.
at::Tensor GradientSum::completed(const at::Tensor& gradient) const {
  return type_ == GradientType::kWide ? gradient.to(wide_type(gradient)) : gradient;
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

HostTransfer::HostTransfer(const std::vector<at::Tensor>& weights, at::ScalarType gradient_type)
    : received_(weights.front().device().type()) {
  for (const at::Tensor& weight : weights) {
    weights_.push_back(weight.detach());
    gradients_.push_back(pinned(weight.sizes(), gradient_type));
    outgoing_.push_back(weight.scalar_type() == gradient_type
                            ? gradients_.back()
                            : pinned(weight.sizes(), weight.scalar_type()));
  }
}

void HostTransfer::receive(std::size_t weight, const at::Tensor& gradient) {
  const at::NoGradGuard no_gradients;
  gradients_[weight].copy_(gradient, /*non_blocking=*/true);
}

void HostTransfer::begin_batch() {
  if (pending_) {
    received_.synchronize();
    add_to_sums();
  }
}

void HostTransfer::end_batch() {
  const at::Device device = weights_.front().device();
  received_.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  pending_ = true;
}

void HostTransfer::add_to_sums() {
  pending_ = false;
  if (!sums_.empty()) {
    at::_foreach_add_(sums_, gradients_);
    return;
  }
  for (const at::Tensor& gradient : gradients_) {
    sums_.push_back(gradient.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true));
  }
}

std::vector<at::Tensor> HostTransfer::finish(at::Tensor& figure) {
  const at::Tensor here = pinned(figure.sizes(), figure.scalar_type());
  here.copy_(figure, /*non_blocking=*/true);
  wait_for(weights_.front().device());
  figure = here;
  pending_ = pending_ && !sums_.empty();
  if (pending_) {
    add_to_sums();
  }
  return sums_.empty() ? gradients_ : std::exchange(sums_, {});
}

void HostTransfer::send(std::size_t weight, const at::Tensor& master) {
  const at::NoGradGuard no_gradients;
  outgoing_[weight].copy_(master);
  weights_[weight].copy_(outgoing_[weight], /*non_blocking=*/true);
}

std::string_view name_of(TrainedWeights which) {
  return kTrainedNames[static_cast<std::size_t>(which)];
}

TrainedWeights parse_trained_weights(std::string_view text) {
  const auto* found = std::ranges::find(kTrainedNames, text);
  if (found == std::end(kTrainedNames)) {
    throw_usage("weights to train are \"{}\", allowed are all, attention and kv", printable(text));
  }
  return static_cast<TrainedWeights>(found - kTrainedNames);
}

std::vector<std::string> trained_tensors(const ModelSpec& spec, TrainedWeights which) {
  std::vector<std::string> names;
  if (which == TrainedWeights::kAll) {
    for (const ExpectedTensor& tensor : expected_tensors(spec)) {
      if (!contains(spec.constant_tensors, tensor.name)) {
        names.push_back(tensor.name);
      }
    }
    return names;
  }
  const auto add = [&](const auto& part) {  // a linear map or a norm
    names.push_back(part.weight);
    names.push_back(part.bias);
  };
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      const AttentionLayout& layout = spec.attention(role, layer);
      add(layout.k);
      add(layout.v);
      std::ranges::for_each(layout.k_norms, add);
      if (which == TrainedWeights::kAttention) {
        add(layout.q);
        add(layout.o);
        std::ranges::for_each(layout.q_norms, add);
        if (role != AttentionRole::kCross) {
          names.push_back(spec.stack(role)[layer].relative_bias);
        }
      }
    }
  }
  std::erase(names, "");
  return names;
}

FrozenQueries::FrozenQueries(const ModelSpec& spec, TrainedWeights which,
                             const MasterWeights& masters) {
  if (which != TrainedWeights::kKeysAndValues) {
    return;
  }
  const auto freeze = [&](const std::string& name, std::int64_t dimension,
                          const at::Tensor& index) {
    for (std::size_t i = 0; i < masters.size(); ++i) {
      const StateTensor& master = masters.tensors()[i];
      for (const at::Tensor& tensor : {master.value, master.low}) {
        if (master.name == name && tensor.defined()) {
          const at::Tensor place = index.to(tensor.device());
          const at::Tensor values = tensor.detach().index_select(dimension, place);
          features_.push_back({i, dimension, place, tensor, values});
        }
      }
    }
  };
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      const AttentionLayout& layout = spec.attention(role, layer);
      if (layout.present() && layout.packing != Packing::kSeparate) {
        const at::Tensor index = query_features(spec, role, layer);
        freeze(layout.q.weight, layout.q.input_major ? 1 : 0, index);
        freeze(layout.q.bias, 0, index);
      }
    }
  }
}

void FrozenQueries::clear(const std::vector<at::Tensor>& gradients) const {
  for (const Features& part : features_) {
    gradients[part.master].index_fill_(part.dimension, part.index, 0.0);
  }
}

void FrozenQueries::restore() const {
  const at::NoGradGuard no_gradients;
  for (const Features& part : features_) {
    part.tensor.index_copy_(part.dimension, part.index, part.values);
  }
}

}  // namespace regroup

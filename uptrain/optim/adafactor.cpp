#include "uptrain/optim/adafactor.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace regroup {
namespace {

constexpr double kDecayExponent = -0.8;
constexpr double kSmallestSquare = 1e-30;
constexpr double kSmallestSize = 1e-3;  // lower bound of a parameter's size
constexpr double kClippingThreshold = 1.0;

at::Tensor root_mean_square(const at::Tensor& tensor) { return tensor.square().mean().sqrt(); }

// Sets moment = β·moment + (1-β)·value, unless `skip`.
void decay_towards(const at::Tensor& moment, const at::Tensor& value, const at::Tensor& beta,
                   const at::Tensor& skip) {
  moment.copy_(at::where(skip, moment, moment * beta + value * (1.0 - beta)));
}

}  // namespace

Adafactor::Adafactor(MasterWeights masters, const AdafactorSettings& settings)
    : masters_(std::move(masters)), settings_(settings) {
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const std::vector<std::int64_t> shape = masters_.sizes(i).vec();
    const auto options = masters_.options(i);
    Moments moments;
    if (shape.size() >= 2) {
      std::vector<std::int64_t> columns(shape.begin(), shape.end() - 2);
      columns.push_back(shape.back());
      moments.rows = at::zeros({shape.data(), shape.size() - 1}, options);
      moments.columns = at::zeros(columns, options);
    } else {
      moments.whole = at::zeros(shape, options);
    }
    moments_.push_back(std::move(moments));
  }
  count_ = at::zeros({}, masters_.options(0).dtype(at::kDouble));
}

void Adafactor::step(const std::vector<at::Tensor>& gradients, double learning_rate,
                     const at::Tensor& gradient_divisor, const at::Tensor& skip) {
  const at::NoGradGuard no_gradients;
  const at::Tensor skipped = skip.to(at::kBool);
  count_.add_(1.0 - skip);
  const at::Tensor beta = 1.0 - count_.clamp_min(1.0).pow(kDecayExponent);
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const at::Tensor weight = masters_.read(i);
    at::Tensor update = update_of(
        moments_[i], gradients[i].to(weight.scalar_type()) / gradient_divisor, beta, skipped);
    if (weight.dim() >= 2 && settings_.weight_decay != 0.0) {
      update.add_(weight, settings_.weight_decay);
    }
    update.mul_(learning_rate);
    if (settings_.scale_by_parameter) {
      update.mul_(root_mean_square(weight).clamp_min(kSmallestSize));
    }
    weight.copy_(at::where(skipped, weight, weight - update));
    update.reset();
    masters_.write(i, weight);
  }
}

at::Tensor Adafactor::update_of(const Moments& moments, const at::Tensor& gradient,
                                const at::Tensor& beta, const at::Tensor& skip) const {
  const at::Tensor square = gradient.square() + kSmallestSquare;
  at::Tensor update;
  if (moments.whole.defined()) {
    decay_towards(moments.whole, square, beta, skip);
    update = gradient * moments.whole.rsqrt();
  } else {
    decay_towards(moments.rows, square.mean(-1), beta, skip);
    decay_towards(moments.columns, square.mean(-2), beta, skip);
    // Divides before multiplying, so that squares of small numbers do not underflow.
    const at::Tensor rows = (moments.rows / moments.rows.mean(-1, /*keepdim=*/true)).rsqrt();
    update = gradient * rows.unsqueeze(-1) * moments.columns.rsqrt().unsqueeze(-2);
  }
  return update / (root_mean_square(update) / kClippingThreshold).clamp_min(1.0);
}

std::vector<Parameters::Entry> Adafactor::state() const {
  std::vector<Parameters::Entry> tensors;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const std::string& name = masters_.name(i);
    if (moments_[i].whole.defined()) {
      tensors.push_back({"second_moment." + name, moments_[i].whole});
    } else {
      tensors.push_back({"second_moment_rows." + name, moments_[i].rows});
      tensors.push_back({"second_moment_columns." + name, moments_[i].columns});
    }
  }
  tensors.push_back({"optimizer.count", count_});
  return tensors;
}

}  // namespace regroup

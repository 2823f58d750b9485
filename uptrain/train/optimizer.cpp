#include "uptrain/train/optimizer.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/ops/kernel_check.h"
#include "uptrain/train/metrics.h"

namespace regroup {

namespace {

// In the order of MemoryMode.
constexpr std::string_view kMemoryModes[] = {"full", "compact", "host"};

}  // namespace

std::string_view name_of(MemoryMode mode) { return kMemoryModes[static_cast<std::size_t>(mode)]; }

MemoryMode parse_memory_mode(std::string_view text) {
  const auto* found = std::ranges::find(kMemoryModes, text);
  if (found == std::end(kMemoryModes)) {
    throw_usage("memory is \"{}\", allowed are full, compact and host", printable(text));
  }
  return static_cast<MemoryMode>(found - kMemoryModes);
}

std::string_view name_of(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW ? "adamw" : "adafactor";
}

OptimizerKind parse_optimizer(std::string_view text) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdafactor}) {
    if (text == name_of(kind)) {
      return kind;
    }
  }
  throw_usage("optimizer is \"{}\", allowed are adamw and adafactor", printable(text));
}

double optimizer_state_bytes(const OptimizerSettings& settings, const Shape& shape) {
  const double elements = elements_of(shape);
  if (settings.kind == OptimizerKind::kAdamW) {
    return 2 * (settings.moments == Precision::kBf16 ? 2 : 4) * elements;
  }
  if (shape.size() < 2) {
    return 4 * elements;
  }
  return 4 * elements / static_cast<double>(shape.back()) +
         4 * elements / static_cast<double>(shape[shape.size() - 2]);
}

at::Tensor clipping_divisor(const at::Tensor& norm, double max_norm) {
  const at::Tensor narrow = norm.to(at::kFloat);
  if (max_norm == 0.0) {
    return at::ones_like(narrow);
  }
  return (narrow / max_norm).clamp_min(1.0);
}

namespace {

// Whole fp32 masters on a device that has the kernel.
bool has_fused_adamw(const MasterWeights& masters) {
  const at::TensorOptions options = masters.options(0);
  return masters.mode() == MemoryMode::kFull && options.dtype() == at::kFloat &&
         can_fuse_adamw(options.device());
}

// Loshchilov & Hutter, Decoupled weight decay, https://arxiv.org/abs/1711.05101: with t counting
// the updates made,
//   m = β₁m + (1-β₁)g    v = β₂v + (1-β₂)g²
//   w = w - lr·λ·w - lr · (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + ε)
// Clipping and the check for finite gradients are fused into its single pass.
class AdamW final : public Optimizer {
 public:
  AdamW(MasterWeights masters, const OptimizerSettings& settings)
      : masters_(std::move(masters)),
        settings_(settings),
        fused_(has_fused_adamw(masters_)),
        count_(at::zeros({}, masters_.options(0).dtype(at::kFloat))) {
    const bool narrow = settings.moments == Precision::kBf16;
    std::vector<std::size_t> decayed, kept;
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      const auto options = masters_.options(i);
      for (auto* moments : {&first_moments_, &second_moments_}) {
        moments->push_back(at::zeros_like(masters_.tensors()[i].value,
                                          narrow ? options.dtype(at::kBFloat16) : options));
      }
      if (narrow || masters_.mode() != MemoryMode::kFull) {
        batches_.push_back({i});  // what is stored in a narrower type is widened for the update
      } else {
        (decay_of(i) != 0.0 ? decayed : kept).push_back(i);
      }
    }
    for (const auto& together : {decayed, kept}) {
      if (!together.empty()) {
        batches_.push_back(together);
      }
    }
  }

  bool writes_copies() const override { return fused_; }

  void step(const std::vector<at::Tensor>& gradients, double learning_rate,
            const at::Tensor& gradient_divisor, const at::Tensor& skip) override {
    const at::NoGradGuard no_gradients;
    count_.add_(1.0);
    if (fused_) {
      step_fused(gradients, learning_rate, gradient_divisor, skip);
    } else {
      for (const std::vector<std::size_t>& batch : batches_) {
        step_batch(batch, gradients, learning_rate, gradient_divisor, skip);
      }
    }
    count_.sub_(skip);
  }

  std::vector<Parameters::Entry> state() const override {
    std::vector<Parameters::Entry> tensors;
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      const std::string& name = masters_.tensors()[i].name;
      tensors.push_back({"first_moment." + name, first_moments_[i]});
      tensors.push_back({"second_moment." + name, second_moments_[i]});
    }
    tensors.push_back({"optimizer.count", count_});
    return tensors;
  }

 private:
  double decay_of(std::size_t master) const {
    return masters_.tensors()[master].value.dim() >= 2 ? settings_.decay_of_matrices() : 0.0;
  }

  // By the device's own kernel, one pass over each tensor.
  void step_fused(const std::vector<at::Tensor>& gradients, double learning_rate,
                  const at::Tensor& gradient_divisor, const at::Tensor& skip) {
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      update_by_fused_adamw({.master = masters_.tensors()[i].value,
                             .copy = masters_.copy(i),
                             .first = first_moments_[i],
                             .second = second_moments_[i],
                             .gradient = gradients[i]},
                            {.rate = learning_rate,
                             .decay = learning_rate * decay_of(i),
                             .beta1 = settings_.beta1,
                             .beta2 = settings_.beta2,
                             .epsilon = settings_.epsilon},
                            {gradient_divisor, skip, count_});
    }
  }

  // By LibTorch's kernel, on masters of the same decay.
  void step_batch(const std::vector<std::size_t>& batch, const std::vector<at::Tensor>& all,
                  double learning_rate, const at::Tensor& gradient_divisor,
                  const at::Tensor& skip) {
    std::vector<at::Tensor> weights, gradients, first, second;
    for (const std::size_t i : batch) {
      weights.push_back(masters_.read(i));
      const at::ScalarType type = weights.back().scalar_type();
      // Makes copies of what is narrower than the weight, else takes the tensors themselves. The
      // CPU's kernel ignores strides, and gradients may be views, such as the columns of a larger
      // tensor.
      gradients.push_back(all[i].to(type).contiguous());
      first.push_back(first_moments_[i].to(type));
      second.push_back(second_moments_[i].to(type));
    }
    const std::vector<at::Tensor> counts(batch.size(), count_);
    at::_fused_adamw_(weights, gradients, first, second, /*max_exp_avg_sqs=*/{}, counts,
                      learning_rate, settings_.beta1, settings_.beta2, decay_of(batch.front()),
                      settings_.epsilon, /*amsgrad=*/false, /*maximize=*/false, gradient_divisor,
                      skip);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      first_moments_[batch[i]].copy_(first[i]);
      second_moments_[batch[i]].copy_(second[i]);
    }
    gradients.clear();  // before masters are split, which takes memory
    first.clear();
    second.clear();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      masters_.write(batch[i], weights[i]);
    }
  }

  MasterWeights masters_;
  OptimizerSettings settings_;
  bool fused_;
  std::vector<std::vector<std::size_t>> batches_;  // masters that one call updates together
  std::vector<at::Tensor> first_moments_, second_moments_;
  at::Tensor count_;  // updates made
};

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

// Second moments of a matrix are kept as one row and one column. Shazeer & Stern 2018,
// https://arxiv.org/abs/1804.04235, algorithms 4 and 5 with a given learning rate and no first
// moment, as T5 was trained. With t counting the updates made, β = 1 - t^-0.8 and means taken over
// the last two dimensions of a tensor [..., m, n]:
//   R = βR + (1-β) mean_n(g² + 1e-30)    C = βC + (1-β) mean_m(g² + 1e-30)
//   u = g / √(R Cᵀ / mean(R))            (a vector keeps its second moment V whole: u = g / √V)
//   u = u / max(1, RMS(u))               α = lr · max(1e-3, RMS(w)), or lr alone
//   w = w - αλw - αu
class Adafactor final : public Optimizer {
 public:
  Adafactor(MasterWeights masters, const OptimizerSettings& settings)
      : masters_(std::move(masters)),
        settings_(settings),
        count_(at::zeros({}, masters_.options(0).dtype(at::kDouble))) {
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      const std::vector<std::int64_t> shape = masters_.tensors()[i].value.sizes().vec();
      const auto options = masters_.options(i);
      Moments& moments = moments_.emplace_back();
      if (shape.size() < 2) {
        moments.whole = at::zeros(shape, options);
        continue;
      }
      std::vector<std::int64_t> columns(shape.begin(), shape.end() - 2);
      columns.push_back(shape.back());
      moments.rows = at::zeros({shape.data(), shape.size() - 1}, options);
      moments.columns = at::zeros(columns, options);
    }
  }

  void step(const std::vector<at::Tensor>& gradients, double learning_rate,
            const at::Tensor& gradient_divisor, const at::Tensor& skip) override {
    const at::NoGradGuard no_gradients;
    const at::Tensor skipped = skip.to(at::kBool);
    count_.add_(1.0 - skip);
    const at::Tensor beta = 1.0 - count_.clamp_min(1.0).pow(kDecayExponent);
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      const at::Tensor weight = masters_.read(i);
      at::Tensor update = update_of(
          moments_[i], gradients[i].to(weight.scalar_type()) / gradient_divisor, beta, skipped);
      if (weight.dim() >= 2 && settings_.decay_of_matrices() != 0.0) {
        update.add_(weight, settings_.decay_of_matrices());
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

  std::vector<Parameters::Entry> state() const override {
    std::vector<Parameters::Entry> tensors;
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      const std::string& name = masters_.tensors()[i].name;
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

 private:
  struct Moments {
    at::Tensor rows, columns;  // [..., m] and [..., n] of a tensor [..., m, n]
    at::Tensor whole;          // of a vector or scalar
  };

  static at::Tensor update_of(const Moments& moments, const at::Tensor& gradient,
                              const at::Tensor& beta, const at::Tensor& skip) {
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

  MasterWeights masters_;
  OptimizerSettings settings_;
  std::vector<Moments> moments_;
  at::Tensor count_;  // updates made
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const MasterWeights& masters,
                                          const OptimizerSettings& settings) {
  if (settings.kind == OptimizerKind::kAdafactor) {
    return std::make_unique<Adafactor>(masters, settings);
  }
  return std::make_unique<AdamW>(masters, settings);
}

}  // namespace regroup

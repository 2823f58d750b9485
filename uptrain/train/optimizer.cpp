#include "uptrain/train/optimizer.h"

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

std::string_view name_of(MemoryMode mode) {
  switch (mode) {
    case MemoryMode::kFull: return "full";
    case MemoryMode::kCompact: return "compact";
    case MemoryMode::kHost: return "host";
  }
  return "full";
}

MemoryMode parse_memory_mode(std::string_view text) {
  for (const MemoryMode mode : {MemoryMode::kFull, MemoryMode::kCompact, MemoryMode::kHost}) {
    if (text == name_of(mode)) {
      return mode;
    }
  }
  throw_usage("memory is \"{}\", allowed are full, compact and host", printable(text));
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

std::unique_ptr<Optimizer> make_optimizer(const MasterWeights& masters,
                                          const OptimizerSettings& settings) {
  if (settings.kind == OptimizerKind::kAdafactor) {
    return std::make_unique<Adafactor>(masters, settings);
  }
  return std::make_unique<AdamW>(masters, settings);
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

}  // namespace

AdamW::AdamW(MasterWeights masters, const OptimizerSettings& settings)
    : masters_(std::move(masters)), settings_(settings), fused_(has_fused_adamw(masters_)) {
  std::vector<std::size_t> decayed;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    (masters_.sizes(i).size() >= 2 ? decayed : kept).push_back(i);
    const auto options = masters_.options(i);
    const bool narrow = settings.moments == Precision::kBf16;
    for (auto* moments : {&first_moments_, &second_moments_}) {
      moments->push_back(at::zeros_like(masters_.tensors()[i].value,
                                        narrow ? options.dtype(at::kBFloat16) : options));
    }
  }
  add_batches(decayed, settings.decay_of_matrices());
  add_batches(kept, 0.0);
  count_ = at::zeros({}, masters_.options(0).dtype(at::kFloat));
}

// What is stored in a narrower type is widened for the update, one tensor at a time.
void AdamW::add_batches(const std::vector<std::size_t>& members, double weight_decay) {
  if (settings_.moments == Precision::kBf16 || masters_.mode() != MemoryMode::kFull) {
    for (const std::size_t member : members) {
      batches_.push_back({{member}, weight_decay});
    }
  } else if (!members.empty()) {
    batches_.push_back({members, weight_decay});
  }
}

AdamW::Tensors AdamW::pick(const std::vector<std::size_t>& members,
                           const std::vector<at::Tensor>& gradients) const {
  Tensors picked;
  for (const std::size_t member : members) {
    const at::Tensor weight = masters_.read(member);
    picked.weights.push_back(weight);
    // Makes copies of what is narrower than the weight, else takes the tensors themselves. The
    // CPU's kernel ignores strides, and gradients may be views, such as the columns of a larger
    // tensor.
    picked.gradients.push_back(gradients[member].to(weight.scalar_type()).contiguous());
    picked.first.push_back(first_moments_[member].to(weight.scalar_type()));
    picked.second.push_back(second_moments_[member].to(weight.scalar_type()));
  }
  return picked;
}

void AdamW::step(const std::vector<at::Tensor>& gradients, double learning_rate,
                 const at::Tensor& gradient_divisor, const at::Tensor& skip) {
  const at::NoGradGuard no_gradients;
  count_.add_(1.0);
  if (fused_) {
    step_fused(gradients, learning_rate, gradient_divisor, skip);
    count_.sub_(skip);
    return;
  }
  for (const Batch& batch : batches_) {
    Tensors tensors = pick(batch.members, gradients);
    const std::vector<at::Tensor> counts(batch.members.size(), count_);
    at::_fused_adamw_(tensors.weights, tensors.gradients, tensors.first, tensors.second,
                      /*max_exp_avg_sqs=*/{}, counts, learning_rate, settings_.beta1,
                      settings_.beta2, batch.weight_decay, settings_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, gradient_divisor, skip);
    for (std::size_t i = 0; i < batch.members.size(); ++i) {
      first_moments_[batch.members[i]].copy_(tensors.first[i]);
      second_moments_[batch.members[i]].copy_(tensors.second[i]);
    }
    tensors.gradients.clear();  // before masters are split, which takes memory
    tensors.first.clear();
    tensors.second.clear();
    for (std::size_t i = 0; i < batch.members.size(); ++i) {
      masters_.write(batch.members[i], tensors.weights[i]);
    }
  }
  count_.sub_(skip);
}

void AdamW::step_fused(const std::vector<at::Tensor>& gradients, double learning_rate,
                       const at::Tensor& gradient_divisor, const at::Tensor& skip) {
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const double decay = masters_.sizes(i).size() >= 2 ? settings_.decay_of_matrices() : 0.0;
    update_by_fused_adamw({.master = masters_.tensors()[i].value,
                           .copy = masters_.copy(i),
                           .first = first_moments_[i],
                           .second = second_moments_[i],
                           .gradient = gradients[i]},
                          {.rate = learning_rate,
                           .decay = learning_rate * decay,
                           .beta1 = settings_.beta1,
                           .beta2 = settings_.beta2,
                           .epsilon = settings_.epsilon},
                          {gradient_divisor, skip, count_});
  }
}

std::vector<Parameters::Entry> AdamW::state() const {
  std::vector<Parameters::Entry> tensors;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    tensors.push_back({"first_moment." + masters_.name(i), first_moments_[i]});
    tensors.push_back({"second_moment." + masters_.name(i), second_moments_[i]});
  }
  tensors.push_back({"optimizer.count", count_});
  return tensors;
}

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

Adafactor::Adafactor(MasterWeights masters, const OptimizerSettings& settings)
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

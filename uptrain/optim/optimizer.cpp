#include "uptrain/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/optim/adafactor.h"
#include "uptrain/optim/adamw.h"

namespace regroup {

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
    return std::make_unique<Adafactor>(
        masters, AdafactorSettings{settings.decay_of_matrices(), settings.scale_by_parameter});
  }
  return std::make_unique<AdamW>(masters,
                                 AdamWSettings{settings.beta1, settings.beta2, settings.epsilon,
                                               settings.decay_of_matrices(), settings.moments});
}

double optimizer_state_bytes(const OptimizerSettings& settings, at::IntArrayRef shape) {
  double elements = 1;
  for (const std::int64_t size : shape) {
    elements *= static_cast<double>(size);
  }
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

}  // namespace regroup

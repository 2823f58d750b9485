// The interface of optimizers.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/device.h"
#include "uptrain/model/parameters.h"
#include "uptrain/optim/master_weights.h"

namespace regroup {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update with gradients on the masters' device, in their order. Gradients have the masters'
  /// dtype; they may be narrower and are widened, in kFull all at once unless writes_copies().
  /// `gradient_divisor` and `skip` are scalar fp32 tensors on the same device, so that the update
  /// does not synchronise it. Gradients are divided by the first. If the second is 1, not 0,
  /// nothing changes, even if gradients are not finite.
  virtual void step(const std::vector<at::Tensor>& gradients, double learning_rate,
                    const at::Tensor& gradient_divisor, const at::Tensor& skip) = 0;

  /// Whether step() also rounds the masters to the model's weights (MasterWeights::copy()), and
  /// takes gradients of any width without widening them.
  virtual bool writes_copies() const { return false; }

  /// The optimizer's state, to be saved and restored in place: tensors with names derived from the
  /// masters', such as "first_moment.wte.weight".
  virtual std::vector<Parameters::Entry> state() const = 0;
};

enum class OptimizerKind { kAdamW, kAdafactor };

/// "adamw" or "adafactor".
std::string_view name_of(OptimizerKind kind);

/// Reads such a name; throws kUsage for anything else.
OptimizerKind parse_optimizer(std::string_view text);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;     ///< AdamW
  double beta2 = 0.95;    ///< AdamW
  double epsilon = 1e-8;  ///< AdamW
  /// Weight decay of tensors with two or more dimensions; none for norms and biases. Default: 0.1
  /// for AdamW, 0 for Adafactor.
  std::optional<double> weight_decay = std::nullopt;
  Precision moments = Precision::kFp32;  ///< AdamW: dtype of m and v
  bool scale_by_parameter = true;        ///< Adafactor: scale updates by the parameter's RMS

  double decay_of_matrices() const {
    return weight_decay.value_or(kind == OptimizerKind::kAdamW ? 0.1 : 0.0);
  }
};

/// An optimizer that updates `masters` (fp32 or fp64) from now on.
std::unique_ptr<Optimizer> make_optimizer(const MasterWeights& masters,
                                          const OptimizerSettings& settings);

/// Bytes of state for a parameter of that shape.
double optimizer_state_bytes(const OptimizerSettings& settings, at::IntArrayRef shape);

/// The divisor, at least 1, that clips gradients of that norm to `max_norm`. A `max_norm` of 0
/// disables clipping.
at::Tensor clipping_divisor(const at::Tensor& norm, double max_norm);

}  // namespace regroup

// Optimizers: AdamW, Adafactor, and weights kept in more bits than they are used in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/device.h"
#include "uptrain/model/parameters.h"

namespace regroup {

// The fp32 masters of the trained weights, in one of several forms.

/// Where training keeps masters, moments and gradients.
enum class MemoryMode {
  kFull,     ///< masters and moments on the device; gradients in fp32
  kCompact,  ///< masters as a bf16 weight and 16 more bits; gradients in bf16 if none are summed
  kHost,     ///< masters, moments and gradients in host memory; the CPU updates the weights
};

/// "full", "compact" or "host".
std::string_view name_of(MemoryMode mode);

/// Reads such a name; throws kUsage for anything else.
MemoryMode parse_memory_mode(std::string_view text);

/// What an optimizer updates. Copies share the tensors' memory.
class MasterWeights {
 public:
  /// Weights that are their own masters, in fp32 or fp64.
  explicit MasterWeights(const Parameters& weights)
      : MasterWeights(MemoryMode::kFull, in_place(weights.entries())) {}

  /// `masters`: whole ones, of which the model's weights are copies; in kCompact split ones, whose
  /// halves include the model's weights; in kHost whole ones in host memory.
  /// `copies`: the model's weights in kFull where they are narrower than the masters, in their
  /// order.
  MasterWeights(MemoryMode mode, std::vector<StateTensor> masters,
                std::vector<at::Tensor> copies = {})
      : mode_(mode), masters_(std::move(masters)), copies_(std::move(copies)) {}

  MemoryMode mode() const { return mode_; }
  std::size_t size() const { return masters_.size(); }
  const std::vector<StateTensor>& tensors() const { return masters_; }

  /// Type and device of a whole master.
  at::TensorOptions options(std::size_t i) const {
    return masters_[i].value.options().dtype(masters_[i].type()).requires_grad(false);
  }

  /// The model's weight where it is a narrower copy of the master, else an undefined tensor.
  at::Tensor copy(std::size_t i) const { return copies_.empty() ? at::Tensor() : copies_[i]; }

  /// A whole master, to be updated in place and passed to write().
  at::Tensor read(std::size_t i) const { return masters_[i].read(); }
  void write(std::size_t i, const at::Tensor& whole) const { masters_[i].write(whole); }

 private:
  MemoryMode mode_;
  std::vector<StateTensor> masters_;
  std::vector<at::Tensor> copies_;
};

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
  /// masters', such as "first_moment.wte.weight", and at the end the number of updates made.
  virtual std::vector<Parameters::Entry> state() const = 0;
};

/// The formulas are in optimizer.cpp.
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
  /// AdamW: the type of the moments m and v. bf16 halves their memory. Each update is computed in
  /// the parameters' type.
  Precision moments = Precision::kFp32;
  bool scale_by_parameter = true;  ///< Adafactor: scale updates by the parameter's RMS

  double decay_of_matrices() const {
    return weight_decay.value_or(kind == OptimizerKind::kAdamW ? 0.1 : 0.0);
  }
};

/// An optimizer that updates `masters` (fp32 or fp64) from now on; moments start at zero, next to
/// the masters.
std::unique_ptr<Optimizer> make_optimizer(const MasterWeights& masters,
                                          const OptimizerSettings& settings);

/// Bytes of state for a parameter of that shape.
double optimizer_state_bytes(const OptimizerSettings& settings, const Shape& shape);

/// The divisor, at least 1, that clips gradients of that norm to `max_norm`. A `max_norm` of 0
/// disables clipping.
at::Tensor clipping_divisor(const at::Tensor& norm, double max_norm);

}  // namespace regroup

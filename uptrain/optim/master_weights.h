// The fp32 masters of the trained weights, in one of several forms.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/parameters.h"
#include "uptrain/model/state_tensor.h"

namespace regroup {

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
  const std::string& name(std::size_t i) const { return masters_[i].name; }
  at::IntArrayRef sizes(std::size_t i) const { return masters_[i].value.sizes(); }

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

}  // namespace regroup

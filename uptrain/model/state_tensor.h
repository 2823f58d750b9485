// The tensors of a training state, among them fp32 masters that are stored in two halves.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace regroup {

/// A named tensor that is saved and restored. Either `value` is the tensor, or it is an fp32 tensor
/// in two halves: `value` is its bf16 rounding and `low`, int16, holds the lower bits:
///   value = (bits + 0x8000) >> 16    low = bits - (value << 16)
/// where bits is the tensor read as int32. Ties are therefore rounded away from zero: after
/// rounding to even, the two ties around a value could not be told apart. The halves are exactly
/// the fp32 tensor, except that every NaN becomes the same NaN.
struct StateTensor {
  std::string name;
  at::Tensor value;
  at::Tensor low = {};  ///< undefined: `value` is the whole tensor

  bool is_split() const { return low.defined(); }

  /// The type of the whole tensor.
  at::ScalarType type() const { return is_split() ? at::kFloat : value.scalar_type(); }

  /// The whole tensor: `value` itself, or a new fp32 tensor on its device.
  at::Tensor read() const;

  /// Replaces the tensor. `whole` may be on another device, or what read() returned.
  void write(const at::Tensor& whole) const;
};

/// Two halves that take the place of the bf16 tensor `value`, whose present values they hold.
StateTensor split_tensor(const std::string& name, const at::Tensor& value);

}  // namespace regroup

// A part of each sequence of a batch, whose other parts are on other devices (sequence
// parallelism).
//
// Shapes: B sequences, n heads, t positions of a part, d head dimension.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace regroup {

struct KeysAndValues {
  at::Tensor k, v;
};

/// Parts are equally long and follow each other. The devices of all parts compute the same passes
/// at the same time.
class SequencePart {
 public:
  virtual ~SequencePart() = default;

  virtual std::int64_t number() const = 0;  ///< of this part, 0 … parts()-1
  virtual std::int64_t parts() const = 0;

  /// The position of this part's first token, if it has so many.
  std::int64_t first(std::int64_t length) const { return number() * length; }

  /// Keys and values, of this part [B, n, t, d] each -> of the earlier parts and this one, [B, n,
  /// (number() + 1)·t, d].
  virtual KeysAndValues joined(const KeysAndValues& own) const = 0;

  /// Sums, over all devices, what they pass for this part, in fp32 at least. all: [B, n, (number()
  /// + 1)·t, d] -> [B, n, t, d].
  virtual KeysAndValues own_sums(const KeysAndValues& all) const = 0;

  /// The sum of the tensors of all parts.
  virtual at::Tensor sum(const at::Tensor& own) const = 0;
};

/// part.joined(), with gradients. `part` must outlive the backward pass.
KeysAndValues join_parts(const SequencePart& part, const KeysAndValues& own);

}  // namespace regroup

// Rotary position embedding: rotates pairs of dimensions by the position: dimension i with i + R/2
// (GPT-NeoX, Llama), or 2i with 2i + 1 (GPT-J). Su et al., RoFormer,
// https://arxiv.org/abs/2104.09864
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Cosines and sines of the angles of T positions.
struct RopeTable {
  at::Tensor cosine;  ///< [T, R/2]
  at::Tensor sine;    ///< [T, R/2]
  bool interleaved = false;
};

/// The table of positions 0 … length-1: position · theta^(-2i/R), scaled as the spec says. Computed
/// in fp64 and rounded once, to the dtype in `options`.
RopeTable make_rope_table(const RopeSpec& spec, std::int64_t length,
                          const at::TensorOptions& options);

/// The same for positions first … first+length-1 in a sequence of `context` tokens, which only
/// dynamic scaling uses.
RopeTable make_rope_table(const RopeSpec& spec, std::int64_t first, std::int64_t length,
                          std::int64_t context, const at::TensorOptions& options);

/// Caches angles, computed for many positions at a time: each step of decoding needs one more.
class RopePositions {
 public:
  /// Computes angles as in sequences of `context` tokens.
  RopePositions(const RopeSpec& spec, std::int64_t context, const at::TensorOptions& options)
      : spec_(spec), context_(context), options_(options) {}

  RopeTable at(std::int64_t first, std::int64_t length);

 private:
  RopeSpec spec_;
  std::int64_t context_;
  at::TensorOptions options_;
  std::int64_t begin_ = 0, end_ = 0;  ///< of the table
  RopeTable table_;
};

/// Rotates the leading R dimensions of each head; the others are unchanged. x: [B, heads, T, d].
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

}  // namespace regroup

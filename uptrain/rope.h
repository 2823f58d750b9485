// Rotary position embedding: pairs of dimensions turn with the position, dimension i together with
// i + R/2 (GPT-NeoX, Llama), or 2i with 2i + 1 (GPT-J).
// Su et al., RoFormer, https://arxiv.org/abs/2104.09864
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "formats/model_spec.h"

namespace regroup {

/// Angles of T positions, ready to multiply with heads.
struct RopeTable {
  at::Tensor cosine;  ///< [T, R/2]
  at::Tensor sine;    ///< [T, R/2]
  bool interleaved = false;
};

/// The table of positions 0 … length-1: position · theta^(-2i/R), scaled as the spec says. Computed
/// in fp64 and rounded once, to the dtype in `options`.
RopeTable make_rope_table(const RopeSpec& spec, std::int64_t length,
                          const at::TensorOptions& options);

/// Rotates the leading R dimensions of each head; the others pass. x: [B, heads, T, d].
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

}  // namespace regroup

// Rotary position embedding, half-split: dimension i turns together with i + R/2.
// Su et al., RoFormer, https://arxiv.org/abs/2104.09864; halves as in GPT-NeoX and Llama.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "formats/model_spec.h"

namespace regroup {

/// Angles of T positions, ready to multiply with heads.
struct RopeTable {
  at::Tensor cosine;  ///< [T, R/2]
  at::Tensor sine;    ///< [T, R/2]
};

/// The table of positions 0 … length-1: position · theta^(-2i/R). Computed in fp64 and rounded
/// once, to the dtype in `options`.
RopeTable make_rope_table(const RopeSpec& spec, std::int64_t length,
                          const at::TensorOptions& options);

/// Rotates the leading R dimensions of each head; the others pass. x: [B, heads, T, d].
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

}  // namespace regroup

// Forward and backward pass of tiled attention, over preallocated memory.
//
// Shapes: see tiled_heads.h.
#pragma once

#include "uptrain/ops/tiled_heads.h"

namespace regroup {

/// Inputs and outputs of the forward pass.
struct TiledForward {
  TiledShape shape;
  TiledTensor<const c10::BFloat16> q, k, turned_v;
  TiledTensor<c10::BFloat16> output;
  float* log_sum;  ///< [B, H, T]
};

void attend_forward(const TiledForward& forward);

/// Inputs and outputs of the backward pass.
struct TiledBackward {
  TiledShape shape;
  TiledTensor<const c10::BFloat16> q, k, v, turned_k, output, outer;
  const float* log_sum;  ///< [B, H, T]
  TiledTensor<c10::BFloat16> by_q;
  TiledTensor<float> by_k, by_v;  ///< [B, H, S, d], of zeros
};

void attend_backward(const TiledBackward& backward);

}  // namespace regroup

// Causal attention of the last positions of sequences to all of them.
//
// Shapes: B sequences, T queries, S keys, S > T, H query heads, G kv heads, d head dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// softmax(scale · q kᵀ + bias) v -> [B, H, T, d], where query i sees keys 0 … S - T + i. bias: per
/// key, [1, H, 1, S], without gradients, on CPUs only; or undefined. Elsewhere heads are bf16 or
/// fp16. Extra memory is linear in T and S.
///
/// Kernels align causal masks at the first query and the first key. So one call computes the
/// earlier keys, which all queries see, and another the last T, which are aligned. The results are
/// merged by the logarithms of their sums (Liu et al. 2023, https://arxiv.org/abs/2310.01889,
/// section 3). The merged results give the exact gradients of both calls.
at::Tensor attend_suffix(const Heads& heads, double scale, const at::Tensor& bias = {});

}  // namespace regroup

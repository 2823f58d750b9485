// Attention on a CPU in parts, between which a request to stop is seen. Passes with gradients are
// steps of a training, which are not stopped; GPUs are fast enough.
//
// Shapes: as in attention.h.
#pragma once

#include <functional>

#include "uptrain/ops/attention.h"

namespace regroup {

/// What `attend` returns for all heads, [B, H, T, d]. Calls it for one sequence and kv head at a
/// time where all of them take a CPU longer than a fraction of a second; the numbers are the same.
/// mask: [1 or B, 1 or H, …], or undefined; each call gets its part.
at::Tensor attend_in_parts(
    const Heads& heads, const at::Tensor& mask,
    const std::function<at::Tensor(const Heads&, const at::Tensor& mask)>& attend);

/// Whether a single head takes a CPU longer than that.
bool is_long(const Heads& heads);

/// What causal `attend` returns for all queries. Calls it for consecutive queries with the keys
/// that they see. The numbers are the same up to rounding.
at::Tensor attend_in_order(const Heads& heads,
                           const std::function<at::Tensor(const Heads&)>& attend);

}  // namespace regroup

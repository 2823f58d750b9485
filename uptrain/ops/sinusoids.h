// Sinusoidal positions. Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.5
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace regroup {

/// The embeddings of positions first … first+length-1, [length, width]: half of each row are the
/// sines of position · 10000^(-i / steps), i = 0 … width/2 - 1, the other half the cosines.
/// Computed in fp64 and rounded once, to the dtype in `options`. `width` is even, `steps` positive.
at::Tensor sinusoids(std::int64_t first, std::int64_t length, std::int64_t width,
                     std::int64_t steps, const at::TensorOptions& options);

}  // namespace regroup

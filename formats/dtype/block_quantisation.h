// ggml's quantised blocks as numbers, and numbers as Q8_0 blocks.
// https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h has the layouts.
#pragma once

#include <cstddef>
#include <span>

#include "formats/dtype/dtype.h"

namespace regroup {

/// True for Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K and Q6_K.
bool can_dequantise(DType dtype);

/// Reads whole blocks of `dtype` as the numbers they stand for. Each value is the float that ggml's
/// reference code computes: products of scales and quants fit a float exactly, and the sum with a
/// block's minimum is rounded once. Throws kUsage for another dtype or a wrong length.
void dequantise_to_double(DType dtype, std::span<const std::byte> blocks, std::span<double> values);

/// Writes numbers as Q8_0 blocks, bit for bit as ggml's reference code does from the numbers
/// rounded to float. Throws kUsage unless `values` fills whole blocks, and kBadInput for values
/// that are not finite or whose scale exceeds half precision.
void quantise_to_q8_0(std::span<const double> values, std::span<std::byte> blocks);

}  // namespace regroup

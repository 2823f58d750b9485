// What one launch of a fused kernel reads and writes. Tensors are contiguous pointers of one
// dtype, fp32 or bf16, unless said otherwise.
#pragma once

#include <cstdint>

#include "uptrain/ops/cuda/kernel_numbers.h"

namespace regroup::kernels {

/// Rotary position embedding, see rotate().
struct RotationCall {
  NumberType type;
  const void* x;  ///< [B, n, T, d] with strides; dimensions are adjacent
  void* y;        ///< likewise
  std::int64_t x_strides[3], y_strides[3];
  const void* cosine;  ///< [T, half]
  const void* sine;    ///< [T, half]
  std::int64_t batch, heads, length;
  int width, half;
  bool interleaved;
  bool inverse;  ///< rotates back: the gradient
};

/// gate · σ(linear · gate + cubic · gate³) · up, see fused_ops.h, over `count` numbers.
struct GatedCall {
  NumberType type;
  const void* gate;
  const void* up;
  void* y;
  std::int64_t count;
  float linear, cubic;
};

/// Its gradients.
struct GatedGradientCall {
  GatedCall forward;  ///< y is not used
  const void* outer;
  void* by_gate;
  void* by_up;
};

/// RMSNorm of the rows of x, or of x + update.
struct NormCall {
  NumberType type;
  const void* x;       ///< [rows, width]
  const void* update;  ///< [rows, width], or null
  void* sum;           ///< x + update, rounded; null without an update
  const void* weight;  ///< [width]
  void* y;             ///< [rows, width]
  float* inverse;      ///< [rows], 1 / sqrt(mean(x²) + epsilon)
  std::int64_t rows, width;
  float epsilon;
};

/// Its gradients.
struct NormGradientCall {
  NumberType type;
  const void* x;          ///< [rows, width], what was normalised
  const void* weight;     ///< [width]
  const float* inverse;   ///< [rows]
  const void* outer;      ///< [rows, width], gradient of y
  const void* outer_sum;  ///< [rows, width], gradient of the sum, added to by_x; or null
  void* by_x;             ///< [rows, width]
  float* by_weight;       ///< [groups, width], to be summed over groups; or null on devices. They
                          ///< have norm_groups(rows, width); the CPU has blocks of rows.
  std::int64_t rows, width;
};

/// The number of groups of adjacent rows whose contributions to the weight's gradient are summed
/// one after the other, none of them empty. It depends on the shape only, so that sums are the same
/// on all devices. Groups have about 16 rows, more where their sums would take over 16 MiB.
inline std::int64_t norm_groups(std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kFewestRows = 16;
  constexpr std::int64_t kMostSums = 1 << 22;
  const std::int64_t most = kMostSums / width > 1 ? kMostSums / width : 1;
  const std::int64_t groups = (rows - 1) / kFewestRows + 1;
  const std::int64_t each = (rows - 1) / (groups < most ? groups : most) + 1;
  return (rows - 1) / each + 1;
}

/// Cross-entropy of rows of logits, see add_fused_cross_entropy(). A target outside [0, width)
/// gives NaN: in its loss and in the gradients of its row.
struct CrossEntropyCall {
  NumberType type;
  void* logits;  ///< [rows, width], `stride` numbers from row to row; overwritten with gradients
  const std::int64_t* targets;  ///< [rows]
  float* losses;                ///< [rows]
  std::int64_t rows, width, stride;
  float scale;  ///< of the gradient
  bool with_gradient;
};

/// One update by AdamW (uptrain/train/optimizer.cpp) over `count` weights. The scalars divisor,
/// skip and updates are on the device.
struct AdamWCall {
  NumberType gradient_type, moment_type;
  const void* gradient;
  float* master;
  void* first;  ///< moments
  void* second;
  void* copy;            ///< bf16, gets the rounded masters; or null
  const float* divisor;  ///< of the gradients
  const float* skip;     ///< 1: nothing is written
  const float* updates;  ///< made, with this one
  std::int64_t count;
  float rate, decay;  ///< of this update; decay is rate times weight decay
  float one_less_beta1, one_less_beta2, log_beta1, log_beta2, epsilon;
};

// The fused kernels compiled for GPUs. Each function queues its work on a stream of the current
// device, a cudaStream_t, and returns null, or what went wrong.

const char* rotate_on_cuda(const RotationCall& call, void* stream);
const char* activate_gated_on_cuda(const GatedCall& call, void* stream);
const char* differentiate_gated_on_cuda(const GatedGradientCall& call, void* stream);
const char* normalise_on_cuda(const NormCall& call, void* stream);
const char* differentiate_norm_on_cuda(const NormGradientCall& call, void* stream);
const char* update_by_adamw_on_cuda(const AdamWCall& call, void* stream);
const char* take_cross_entropy_on_cuda(const CrossEntropyCall& call, void* stream);

}  // namespace regroup::kernels

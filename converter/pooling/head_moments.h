// Second moments of heads over the text, by planes of RoPE.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "converter/heads/calibration.h"
#include "converter/heads/heads.h"
#include "converter/heads/pool_method.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

/// Calls a vector function of MKL before threads do. MKL chooses its kernels at the first call:
/// threads that make it together may go on with different ones, whose last bits differ.
void choose_vector_kernels();

/// Calls `work`. Out of memory, or an eigenproblem that does not converge, becomes kEnvironment.
template <typename Work>
auto with_pooling_errors(PoolMethod method, const Work& work) {
  try {
    choose_vector_kernels();
    return work();
  } catch (const c10::Error& fault) {
    const std::string_view text = fault.what_without_backtrace();
    throw_environment("pooling method {}: {}", name_of(method),
                      printable(text.substr(0, text.find('\n'))));
  }
}

// Indices of free features and RoPE planes among the features of a head.
//
// Shapes: P planes, f free features, d features.

/// The features of a HeadBasis as tensors of a device.
struct BasisIndices {
  at::Tensor free;            ///< int64 [f]
  at::Tensor a, b;            ///< the first and the second feature of each plane, int64 [P]
  std::int64_t head_dim = 0;  ///< d

  BasisIndices() = default;
  BasisIndices(const HeadBasis& basis, c10::Device device);

  bool has_free() const { return free.size(0) > 0; }
  bool rotates() const { return a.size(0) > 0; }
};

// Covariances of the heads of one linear map over its inputs.
//
// Shapes: N heads of d features, D inputs; f free features and P planes of each.

/// Weight [N, d, D] and bias [N, d], undefined if there is none. On the CPU views, elsewhere
/// copies.
struct HeadMaps {
  at::Tensor weight, bias;

  HeadMaps(const DenseLinear& linear, std::int64_t head_dim, c10::Device device);
};

/// The members of InputMoments as tensors, undefined where they are empty. On the CPU views,
/// elsewhere copies.
struct MomentTensors {
  at::Tensor mean;        ///< [D]
  at::Tensor variance;    ///< [D]
  at::Tensor covariance;  ///< [D, D]

  MomentTensors(const InputMoments& moments, c10::Device device);
};

/// The projections of an attention as tensors of one device.
struct AttentionTensors {
  HeadMaps q, k, v;
  at::Tensor o;  ///< [E, H, d]

  AttentionTensors(const AttentionHeads& heads, c10::Device device);
};

/// E[x_i x_jᵀ] for heads x = W y + b over inputs y. Multiplies W by the covariance once, for all
/// heads.
class HeadMoments {
 public:
  /// Ignores the means of features with a 0 in `counts_mean` [d]. Keeps the tensors of `maps`.
  /// Throws kInterrupted soon after `stop`, if given, turns true.
  HeadMoments(const HeadMaps& maps, const MomentTensors& inputs, const at::Tensor& counts_mean,
              const std::atomic<bool>* stop);

  /// The moments of each head: [N, d, d]. Covariances exclude the means.
  at::Tensor powers() const;
  at::Tensor covariances() const;

  /// Means, zero if ignored: [N, d].
  const at::Tensor& means() const { return mean_; }

  /// The Gram matrix of the free features of `count` heads from `first` on: [n, f, n, f].
  at::Tensor free_gram(const BasisIndices& basis, std::int64_t first, std::int64_t count) const;

  /// E[conj(x_i) x_j] in every plane: complex [P, n, n].
  at::Tensor plane_gram(const BasisIndices& basis, std::int64_t first, std::int64_t count) const;

 private:
  HeadMaps maps_;
  at::Tensor half_;  ///< W T, where T + Tᵀ is the covariance: [N, d, D]
  at::Tensor mean_;  ///< [N, d]
};

/// The mean outputs of the maps: [N, d].
at::Tensor mean_of(const HeadMaps& maps, const MomentTensors& inputs);

/// Throws kInterrupted if `stop` is given and true.
void check_not_stopped(const std::atomic<bool>* stop);

/// The numbers as a tensor of that shape: a view on the CPU, a copy elsewhere.
at::Tensor tensor_of(const std::vector<double>& values, std::vector<std::int64_t> shape,
                     c10::Device device);

}  // namespace regroup

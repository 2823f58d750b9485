// How heads are pooled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/model/conversion_record.h"
#include "formats/spec/model_spec.h"

namespace regroup {

// Changes of basis of a head's features that do not change the result of attention.

/// The d features of a head consist of planes that RoPE rotates and of free features. A plane
/// allows only a rotation and a common scale of both features; free features can be mixed by any
/// matrix. With neither, the basis is fixed.
struct HeadBasis {
  std::vector<std::pair<std::int64_t, std::int64_t>> rope_planes;
  std::vector<std::int64_t> free;
  std::vector<double> frequencies = {};  ///< of the planes, radians per position

  bool fixed() const { return rope_planes.empty() && free.empty(); }
  bool rotates() const { return !rope_planes.empty(); }
  std::int64_t head_dim() const { return std::ssize(free) + 2 * std::ssize(rope_planes); }
};

/// All features are free: values, which only the output projection reads.
HeadBasis free_basis(std::int64_t head_dim);

/// The basis of the keys of one role in one layer: free without RoPE, also with position biases;
/// planes with RoPE; fixed if keys are normalised, since norm weights belong to features.
HeadBasis key_basis(const ModelSpec& spec, AttentionRole role, std::size_t layer);

/// Whether solvers may move norms of queries and keys into the projections, and normalise what they
/// find again, which computes nearly the same: RMSNorm over all heads together, or over each with
/// the same weights. LayerNorm subtracts the mean of features, which belongs to their basis.
bool absorbs_qk_norms(const ModelSpec& spec);

/// The basis in which solvers look for shared keys: as key_basis(), and as if keys were not
/// normalised where norms are absorbed.
HeadBasis solved_basis(const ModelSpec& spec, AttentionRole role, std::size_t layer);

/// Methods that pool a group of kv heads into one.
enum class PoolMethod {
  kMean,     ///< the mean of the heads (Ainslie et al. 2023)
  kFirst,    ///< the first head
  kRandom,   ///< one head, drawn with a seed
  kLowrank,  ///< the head from which the others can be restored with the least error
};

/// "mean", "first", "random" or "lowrank".
std::string_view name_of(PoolMethod method);

/// The method of that name. Throws kUsage listing the names for any other.
PoolMethod parse_pool_method(std::string_view name);

/// Whether the method solves for heads from the weights, and also rewrites query and output
/// projections; the others only choose heads to average.
bool needs_solver(PoolMethod method);

/// Statistics that are not kept after a conversion, as its record has them.
struct DiscardedStatistics {
  std::uint64_t tokens = 0;
  std::string fingerprint;
};

/// How heads are pooled.
struct Pooling {
  PoolMethod method;
  std::uint64_t seed;    ///< of PoolMethod::kRandom
  bool refined = false;  ///< whether an AttentionRefiner runs afterwards
  /// How the result's pooled attentions are trained together; none: not at all.
  std::optional<Recipe> distillation;
  /// The device that solves, as LibTorch names it ("cuda:1"). Another than the CPU rounds
  /// otherwise.
  std::string device;
  /// Set if the statistics are not kept: nothing can compute the heads again, so their tensors get
  /// checksums.
  std::optional<DiscardedStatistics> discarded_statistics;

  // A constructor, since GCC 12 warns of the string in aggregates that contain this one.
  Pooling(PoolMethod used = PoolMethod::kMean, std::uint64_t random_seed = 0);  // NOLINT

  /// Whether training follows.
  bool trained() const { return refined || distillation.has_value(); }

  /// Whether pooling needs more than the choice of heads to average: query and output projections
  /// also change.
  bool needs_solver() const { return trained() || regroup::needs_solver(method); }

  /// Whether heads are solved for on another device than the CPU.
  bool solves_elsewhere() const { return regroup::needs_solver(method) && device != "cpu"; }

  /// Whether heads cannot be computed again on a CPU from what is kept.
  bool needs_checksums() const {
    return trained() || solves_elsewhere() ||
           (regroup::needs_solver(method) && discarded_statistics.has_value());
  }

  /// The kind of device, without its number: "cuda".
  std::string device_kind() const { return device.substr(0, device.find(':')); }
};

/// For each of `after` stored heads the heads it is the mean of: those of heads_of_groups(), or the
/// one head of each group that kFirst or kRandom chooses. `stream` separates the random draws of
/// different layers and roles. Throws kUsage for methods that need a solver.
std::vector<std::vector<std::int64_t>> heads_to_average(const Pooling& pooling, std::int64_t before,
                                                        std::int64_t groups, std::int64_t after,
                                                        std::uint64_t stream);

}  // namespace regroup

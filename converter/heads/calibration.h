// Statistics of attention inputs, as a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/model/model.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// Mean and covariance of inputs y of width D. The second moment E[yᵀy] is their sum, covariance +
/// mean·meanᵀ.
struct InputMoments {
  std::vector<double> mean;        ///< [D]
  std::vector<double> variance;    ///< [D] if the covariance is diagonal; else empty
  std::vector<double> covariance;  ///< [D, D], symmetric, if it is not; else empty

  std::int64_t width() const { return static_cast<std::int64_t>(mean.size()); }
};

/// Which inputs: in cross-attention queries have other inputs than keys and values.
enum class InputSide { kQueries, kKeysAndValues };

/// The moments assumed without data: a norm produces uncorrelated features of variance 1, so after
/// its weights γ and biases β they have mean β and covariance diag(γ²). Without a norm before the
/// attention: mean 0 and variance 1.
InputMoments moments_after_norm(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                InputSide side, std::int64_t width, const Checkpoint& checkpoint);

// Distances between a query and the keys that it attends to.

/// Per query head (H): the fraction of attention on keys t positions before the query, averaged
/// over queries.
struct KeyDistances {
  std::int64_t length = 0;      ///< T, distances 0 … T − 1
  std::vector<double> weights;  ///< [H, T], rows that add up to 1
  /// Keys lie t positions before or after the query, taken to be equally likely: not causal.
  bool both_sides = false;

  /// The same with query head order[i] in place i.
  KeyDistances in_order(std::span<const std::int64_t> order) const;
};

/// Whether they matter in a layer: its keys have RoPE.
bool has_distances(const ModelSpec& spec, AttentionRole role, std::size_t layer);

/// The assumption without data: attention decays with the distance as (1 + t)^-3/2 (chosen by
/// measurement, docs/pooling.md), up to the model's positions, but at most kMostDistances; on
/// `both_sides` of the query if it is not causal.
KeyDistances usual_distances(const ModelSpec& spec, bool both_sides = false);
inline constexpr std::int64_t kMostDistances = 4096;

// Statistics of a model's attention inputs over a text, written by `regroup calibrate`.

/// Keys of a statistics file's safetensors metadata, and its formats: files of the first one have
/// no checksums.
inline constexpr const char* kCalibrationFormatKey = "regroup.calibration";
inline constexpr const char* kCalibrationFormat = "1";
inline constexpr const char* kCheckedCalibrationFormat = "2";
inline constexpr const char* kCalibrationSourceKey = "regroup.source_fingerprint";
inline constexpr const char* kCalibrationTokensKey = "regroup.tokens";

/// The tensor that holds the checksums of all others, U64 [n], in file order.
inline constexpr const char* kCalibrationChecksums = "checksums";

/// The checksum of one tensor: of its name and bytes, the source's fingerprint and the number of
/// tokens.
std::uint64_t statistics_checksum(const std::string& source, const std::string& tokens,
                                  const std::string& name, std::span<const std::byte> bytes);

/// Names the moments of an attention's inputs in a statistics file, which has "NAME.mean" [D] and
/// "NAME.covariance" [D, D]. The keys and values of all layers' cross-attention share one input.
std::string moments_name(AttentionRole role, std::size_t layer, InputSide side);

/// Names the tensor of KeyDistances in a statistics file, [H, T].
std::string distances_name(AttentionRole role, std::size_t layer);

class Calibration {
 public:
  /// Opens a statistics file. Throws kBadInput for any other file.
  explicit Calibration(const std::filesystem::path& path);

  /// Throws kBadInput unless the statistics belong to the model with that fingerprint.
  void check_source(const std::string& fingerprint) const;

  /// The moments of inputs of that width D, with correlations shrunk by n / (n + D) for n
  /// tokens(). Throws kBadInput if they are missing, of another width, or no moments of
  /// activations: not finite, above 1e10, or with a covariance that its variances do not allow.
  InputMoments moments(AttentionRole role, std::size_t layer, InputSide side,
                       std::int64_t width) const;

  /// The key distances of that attention with that number of query heads. Throws the same.
  KeyDistances distances(AttentionRole role, std::size_t layer, std::int64_t query_heads) const;

  /// Number of tokens in the statistics, as the file states.
  std::uint64_t tokens() const { return static_cast<std::uint64_t>(tokens_); }

  /// Identifies these statistics, also among others of the same source.
  std::string fingerprint() const;

 private:
  std::vector<double> read(const std::string& name, const Shape& shape) const;
  std::string file() const;

  Checkpoint checkpoint_;
  std::int64_t tokens_ = 0;
};

/// The statistics at `path`, which must belong to `source`; none for an empty path. Throws
/// kBadInput as opening and check_source() do.
std::shared_ptr<const Calibration> open_calibration(const std::filesystem::path& path,
                                                    const Model& source);

}  // namespace regroup

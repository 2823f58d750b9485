// Statistics of a model's attention inputs over a text, written by `regroup calibrate`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "converter/pooling/inputs/input_moments.h"
#include "converter/pooling/inputs/key_distances.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/model/model.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Keys of a statistics file's safetensors metadata.
inline constexpr const char* kCalibrationFormatKey = "regroup.calibration";
inline constexpr const char* kCalibrationFormat = "1";
inline constexpr const char* kCalibrationSourceKey = "regroup.source_fingerprint";
inline constexpr const char* kCalibrationTokensKey = "regroup.tokens";

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

  /// Number of tokens in the statistics, as the file states, in decimal.
  std::string tokens() const;

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

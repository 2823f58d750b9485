// A GGUF model's hyper-parameters: the metadata keys under its architecture's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf_metadata.h"

namespace regroup {

/// llama.cpp's limit on the number of layers.
inline constexpr std::int64_t kMaxGgufLayers = 512;
/// The largest value accepted for any size.
inline constexpr std::int64_t kMaxGgufSize = std::int64_t{1} << 31;

/// Reads <architecture>.<name>. Throws kBadInput naming the key for a value of another type or
/// outside the range given.
class GgufHyperparameters {
 public:
  /// `metadata` must outlive this.
  GgufHyperparameters(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& where() const { return metadata_.where(); }

  /// A number from 1 to kMaxGgufSize.
  std::optional<std::int64_t> optional_count(std::string_view name) const;

  /// The same; throws kBadInput if absent.
  std::int64_t count(std::string_view name) const;

  double number_or(std::string_view name, double absent) const {
    return metadata_.number(key(name)).value_or(absent);
  }

  /// One value for each of `layers`, expanded if the file has a single value. 0 means that the
  /// layer has none.
  std::optional<std::vector<std::int64_t>> per_layer(std::string_view name,
                                                     std::int64_t layers) const;

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

}  // namespace regroup

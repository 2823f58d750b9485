// Writes one GGUF file of version 3.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint_writer.h"
#include "formats/gguf/gguf_metadata.h"

namespace regroup {

/// A file without tensors.
std::string encode_gguf(const GgufMetadata& metadata);

class GgufWriter : public CheckpointWriter {
 public:
  /// Creates the file at `path`, lays the tensors out in the given order with the alignment in
  /// `metadata`, and writes everything before the tensor data. Throws kUsage for a tensor that the
  /// format cannot hold (dtype, dimensions, name length), kEnvironment if there is not enough free
  /// space.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::span<const OutputTensor> tensors);

  /// Overwrites the metadata given to the constructor. Throws kUsage unless both have the same
  /// length.
  void replace_metadata(const GgufMetadata& metadata);

 private:
  std::vector<OutputTensor> tensors_;
  std::uint64_t header_bytes_ = 0;
};

}  // namespace regroup

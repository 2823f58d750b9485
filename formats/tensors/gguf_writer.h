// Writes one GGUF file of version 3.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

/// A file without tensors.
std::string encode_gguf(const GgufMetadata& metadata);

/// Overwrites the metadata of a file with `tensors` tensors that GgufWriter wrote with `before`,
/// and flushes it. Throws kUsage unless both have the same length.
void overwrite_metadata(const std::filesystem::path& path, std::size_t tensors,
                        const GgufMetadata& before, const GgufMetadata& after);

class GgufWriter : public CheckpointWriter {
 public:
  /// Creates the file at `path`, lays the tensors out in the given order with the alignment in
  /// `metadata`, and writes everything before the tensor data. Throws kUsage for a tensor that the
  /// format cannot hold (dtype, dimensions, name length), kEnvironment if there is not enough free
  /// space.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::span<const OutputTensor> tensors);
};

}  // namespace regroup

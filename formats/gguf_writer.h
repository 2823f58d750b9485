// Writes one GGUF file of version 3.
#pragma once

#include <filesystem>
#include <span>

#include "formats/checkpoint_writer.h"
#include "formats/gguf_metadata.h"

namespace regroup {

class GgufWriter : public CheckpointWriter {
 public:
  /// Lays the tensors out at `path`, in the order given and aligned as `metadata` says, creates the
  /// file and writes all that stands before them. Throws kUsage for a tensor that the format cannot
  /// hold (dtype, dimensions, length of its name), kEnvironment when the free space cannot suffice.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::span<const OutputTensor> tensors);
};

}  // namespace regroup

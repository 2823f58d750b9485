// Writes one GGUF file of version 3.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "formats/checkpoint/checkpoint_writer.h"
#include "formats/gguf/gguf_metadata.h"

namespace regroup {

class GgufWriter : public CheckpointWriter {
 public:
  /// Lays the tensors out at `path`, in the order given and aligned as `metadata` says, creates the
  /// file and writes all that stands before them. Throws kUsage for a tensor that the format cannot
  /// hold (dtype, dimensions, length of its name), kEnvironment when the free space cannot suffice.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::span<const OutputTensor> tensors);

  /// Puts other metadata in place of that given first. Throws kUsage where it is not as long.
  void replace_metadata(const GgufMetadata& metadata);

 private:
  std::vector<OutputTensor> tensors_;
  std::uint64_t header_bytes_ = 0;
};

}  // namespace regroup

// Parses the untrusted header of a GGUF file: everything before the tensor data.
#pragma once

#include <string>
#include <vector>

#include "formats/base/file.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/gguf/gguf_metadata.h"

namespace regroup {

struct GgufHeader {
  GgufMetadata metadata;
  /// In file order, with offsets in the file. Shapes are in torch's order, the reverse of the
  /// file's.
  std::vector<TensorInfo> tensors;
};

/// Error messages begin with `where` (a file name). Tensors must be contiguous, each padded to the
/// alignment, and inside the file. Throws kBadInput.
GgufHeader read_gguf_header(const File& file, const std::string& where);

}  // namespace regroup

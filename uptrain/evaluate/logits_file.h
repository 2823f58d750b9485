// A safetensors file of logits that is written batch by batch.
#pragma once

#include <cstdint>
#include <filesystem>

#include <ATen/core/Tensor.h>

#include "formats/base/file.h"

namespace regroup {

/// F32 `logits` [windows, positions, V]. The file gets its name when it is complete.
class LogitsFile {
 public:
  /// Throws kUsage if `path` exists.
  LogitsFile(std::filesystem::path path, std::int64_t windows, std::int64_t positions,
             std::int64_t vocab);
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;
  ~LogitsFile();

  /// Appends the next windows, [count, positions, V] on any device. Throws kBadInput for NaN or
  /// infinities; `source` (a file name) and `first`, the number of the first window, are for the
  /// error.
  void append(const at::Tensor& logits, const std::filesystem::path& source, std::int64_t first);

  /// After the last window: flushes the file and gives it its name.
  void publish();

 private:
  std::filesystem::path path_, staging_;
  File file_;
  std::uint64_t offset_ = 0;
};

}  // namespace regroup

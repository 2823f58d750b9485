// A new file that is written sequentially through a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "formats/base/file.h"

namespace regroup {

class AppendedFile {
 public:
  /// Throws kEnvironment, also when `path` exists.
  explicit AppendedFile(const std::filesystem::path& path) : file_(File::create(path)) {}

  void append(std::span<const std::byte> bytes);

  /// Writes the buffered bytes to the file.
  void flush();

  /// Bytes appended so far.
  std::uint64_t size() const { return written_ + buffer_.size(); }

  /// The underlying file. Flushed bytes can be read from it and overwritten.
  File& file() { return file_; }

 private:
  File file_;
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;
};

}  // namespace regroup

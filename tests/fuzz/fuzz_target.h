// Common parts of fuzz targets: input bytes as a file, and checks of refusals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/error.h"

namespace regroup {

/// A file in memory with a path. A target keeps one and rewrites it, because files on a disk would
/// take more time than the parser.
class MemoryFile {
 public:
  MemoryFile()
      : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)),
        path_("/proc/self/fd/" + std::to_string(descriptor_)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  /// Sets the contents to `bytes`, then zeros up to `size`. Returns false if the file cannot be so
  /// large.
  bool hold(std::string_view bytes, std::uint64_t size = 0) const {
    const auto put = static_cast<ssize_t>(bytes.size());
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != put) {
      ::abort();
    }
    return size <= bytes.size() || ::ftruncate(descriptor_, static_cast<off_t>(size)) == 0;
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Calls `read`. It may throw only an Error about the input, in one printable line.
template <typename Read>
void refuse_or_read(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput && error.kind() != ErrorKind::kUsage) {
      throw;
    }
    for (const char byte : std::string_view(error.what())) {
      if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f) {
        ::abort();
      }
    }
  }
}

}  // namespace regroup

/// libFuzzer or replay.cpp calls it with each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// What fuzz targets share: bytes as a file, and refusals that are no findings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/error.h"

namespace regroup {

/// A file in memory that can be opened by its path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      ::abort();
    }
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Calls `read`; what it throws must be an Error that blames the input, in one printable line.
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

/// What libFuzzer, or replay.cpp, calls with each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

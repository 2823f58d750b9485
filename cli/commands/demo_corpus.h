// Real text that is surely on a machine with a compiler: the standard library's headers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace regroup {

/// A corpus split by files, so that no held-out text was seen in training.
struct DemoCorpus {
  std::filesystem::path origin;
  std::string training;
  std::string held_out;
};

/// Reads up to `max_bytes` of text below `origin` (or of the one file it names), in an order that
/// depends on names only; every tenth file is held out. With an empty `origin` it looks for the
/// headers of the C++ library. Throws kUsage when there is too little text.
DemoCorpus read_demo_corpus(const std::filesystem::path& origin, std::uint64_t max_bytes);

/// Writes text as a token file: one u16 per byte, little-endian.
void write_byte_tokens(const std::filesystem::path& path, const std::string& text);

}  // namespace regroup

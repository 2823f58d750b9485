// A text corpus for the demo. Machines with a compiler have one: the C++ standard library's
// headers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace regroup {

/// A corpus, split by files so that held-out text is not part of the training text.
struct DemoCorpus {
  std::filesystem::path origin;
  std::string training;
  std::string held_out;
};

/// Reads up to `max_bytes` of text from `origin`, a file or a directory. Files are read in the
/// order of their names and every tenth is held out; of a single file, the last tenth. An empty
/// `origin` means the headers of the C++ library. Throws kUsage if there is less than 200,000 bytes
/// of text.
DemoCorpus read_demo_corpus(const std::filesystem::path& origin, std::uint64_t max_bytes);

/// Writes text as a token file: one u16 per byte, little-endian.
void write_byte_tokens(const std::filesystem::path& path, const std::string& text);

}  // namespace regroup

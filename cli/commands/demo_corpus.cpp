#include "cli/commands/demo_corpus.h"

#include <algorithm>
#include <span>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMinTextBytes = 200'000;
constexpr std::uint64_t kMaxFileBytes = 4U << 20;
constexpr std::size_t kHeldOutEvery = 10;

fs::path find_headers() {
  const fs::path root = "/usr/include/c++";
  std::error_code fault;
  std::vector<fs::path> versions;
  for (const auto& entry : fs::directory_iterator(root, fault)) {
    versions.push_back(entry.path());
  }
  if (versions.empty()) {
    throw_usage("{}: no C++ headers found; choose a text file or a directory of texts with --text",
                root.string());
  }
  return *std::max_element(versions.begin(), versions.end());
}

std::vector<fs::path> files_below(const fs::path& origin) {
  if (!fs::is_directory(origin)) {
    return {origin};
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(origin)) {
    if (entry.is_regular_file() && entry.file_size() <= kMaxFileBytes) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Removes the comment at the beginning: a licence repeated in every file would dominate training.
std::string body_of(const std::string& text) {
  std::size_t at = 0;
  while (text.compare(at, 2, "//") == 0) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) {
      return "";
    }
    at = end + 1;
  }
  return text.substr(at);
}

std::string beginning_of(const fs::path& path, std::uint64_t max_bytes) {
  const File file = File::open(path);
  std::string text(std::min(file.size(), max_bytes), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool is_text(const std::string& text) { return text.find('\0') == std::string::npos; }

}  // namespace

DemoCorpus read_demo_corpus(const fs::path& origin, std::uint64_t max_bytes) {
  DemoCorpus corpus;
  corpus.origin = origin.empty() ? find_headers() : origin;
  const std::vector<fs::path> files = files_below(corpus.origin);
  if (files.size() == 1) {
    const std::string text = beginning_of(files.front(), max_bytes);
    const std::size_t split = text.size() - text.size() / kHeldOutEvery;
    corpus.training = text.substr(0, split);
    corpus.held_out = text.substr(split);
  }
  for (std::size_t i = 0; files.size() > 1 && i < files.size(); ++i) {
    const std::string body = body_of(read_text(files[i], kMaxFileBytes));
    std::string& part = i % kHeldOutEvery == kHeldOutEvery - 1 ? corpus.held_out : corpus.training;
    if (is_text(body) && corpus.training.size() + corpus.held_out.size() < max_bytes) {
      part += body;
    }
  }
  if (corpus.training.size() + corpus.held_out.size() < kMinTextBytes) {
    throw_usage("{}: {} bytes of text, at least {} are needed",
                printable(corpus.origin.string(), 0),
                corpus.training.size() + corpus.held_out.size(), kMinTextBytes);
  }
  return corpus;
}

void write_byte_tokens(const fs::path& path, const std::string& text) {
  std::string tokens(2 * text.size(), '\0');
  for (std::size_t i = 0; i < text.size(); ++i) {
    tokens[2 * i] = text[i];
  }
  write_text(path, tokens);
}

}  // namespace regroup

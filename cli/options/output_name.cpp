#include "cli/options/output_name.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

void check_output_name(const std::filesystem::path& path, std::string_view what,
                       std::initializer_list<std::string_view> endings) {
  constexpr std::array<std::string_view, 12> kFiles{".gguf", ".safetensors", ".bin",  ".pt",
                                                    ".pth",  ".npy",         ".idx",  ".json",
                                                    ".html", ".svg",         ".toml", ".txt"};
  // "out.gguf/" counts as out.gguf.
  const auto whole = path.has_filename() ? path : path.parent_path();
  const std::string ending = whole.extension().string();
  const bool of_a_file = std::find(kFiles.begin(), kFiles.end(), ending) != kFiles.end();
  if (of_a_file && std::find(endings.begin(), endings.end(), ending) == endings.end()) {
    throw_usage("{}: {} is made, whose name cannot end in {}{}", printable(path.string(), 0), what,
                ending,
                endings.size() == 0 ? std::string(": leave that out")
                                    : fmt::format("; allowed is {}", fmt::join(endings, ", ")));
  }
}

void check_directory_name(const std::filesystem::path& path) {
  check_output_name(path, "a directory", {});
}

}  // namespace regroup

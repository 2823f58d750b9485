#include "formats/container.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "formats/error.h"
#include "formats/gguf.h"
#include "formats/printable.h"
#include "formats/safetensors.h"
#include "formats/torch_checkpoint.h"

namespace regroup {
namespace {

// A pickle of protocol 2 whose first value is the magic number of torch.save before 1.6.
constexpr std::string_view kOldTorch("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);

std::string first_bytes(const std::filesystem::path& path) {
  const File file = File::open(path);
  std::string bytes(std::min<std::uint64_t>(file.size(), kOldTorch.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

Checkpoint::Part open_weight_file(const std::filesystem::path& path) {
  const std::string first = first_bytes(path);
  if (first.starts_with("PK\x03\x04")) {
    return open_torch_checkpoint(path);
  }
  if (first.starts_with(kGgufMagic)) {
    return open_gguf(path).part;
  }
  if (first == kOldTorch) {
    throw_bad_input(
        "{}: a torch file as written before torch 1.6 (no ZIP archive), which is not read; load it "
        "in a newer torch and torch.save it again",
        printable(path.string(), 0));
  }
  return open_safetensors(path);
}

}  // namespace regroup

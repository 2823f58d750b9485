#include "formats/directory/container.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "formats/gguf/gguf.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch/legacy_torch_checkpoint.h"
#include "formats/torch/torch_checkpoint.h"

namespace regroup {
namespace {

std::string first_bytes(const File& file) {
  std::string bytes(std::min<std::uint64_t>(file.size(), kLegacyTorchMagic.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

Checkpoint::Part open_weight_file(const std::filesystem::path& path) {
  File file = File::open(path);
  const std::string first = first_bytes(file);
  if (first.starts_with("PK\x03\x04")) {
    return open_torch_checkpoint(path);
  }
  if (first.starts_with(kGgufMagic)) {
    return open_gguf(path).part;
  }
  if (first == kLegacyTorchMagic) {
    return open_legacy_torch_checkpoint(path);
  }
  return open_safetensors(std::move(file));
}

}  // namespace regroup

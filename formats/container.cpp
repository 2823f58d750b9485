#include "formats/container.h"

#include <algorithm>
#include <span>
#include <string>

#include "formats/safetensors.h"
#include "formats/torch_checkpoint.h"

namespace regroup {
namespace {

std::string first_bytes(const std::filesystem::path& path) {
  const File file = File::open(path);
  std::string bytes(std::min<std::uint64_t>(file.size(), 4), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

Checkpoint::Part open_weight_file(const std::filesystem::path& path) {
  if (first_bytes(path) == "PK\x03\x04") {
    return open_torch_checkpoint(path);
  }
  return open_safetensors(path);
}

}  // namespace regroup

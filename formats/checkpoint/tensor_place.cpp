#include "formats/checkpoint/tensor_place.h"

#include <fmt/format.h>

#include "formats/base/printable.h"

namespace regroup {

std::string place_of(const Checkpoint& checkpoint) {
  const auto& files = checkpoint.files();
  if (files.empty()) {
    return "a model without weights";
  }
  if (files.size() == 1) {
    return printable(files.front().path().string(), 0);
  }
  const auto directory = files.front().path().parent_path();
  return directory.empty() ? "." : printable(directory.string(), 0);
}

std::string place_of(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const std::string file = checkpoint.files().empty()
                               ? place_of(checkpoint)
                               : printable(checkpoint.file_of(tensor).path().string(), 0);
  return fmt::format("{}: tensor {}", file, printable(tensor.name));
}

}  // namespace regroup

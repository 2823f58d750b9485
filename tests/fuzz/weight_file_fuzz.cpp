// A weight file of any container, recognised by its first bytes; then every tensor's range, and the
// values of small tensors.
#include "formats/model/model_directory.h"
#include "tests/fuzz/fuzz_target.h"

namespace regroup {
namespace {

void read_small(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  constexpr std::uint64_t kSmall = 1U << 16;
  if (tensor.contiguous() && tensor.end > checkpoint.files()[tensor.file].size()) {
    ::abort();
  }
  if (tensor.bytes() <= kSmall) {
    std::vector<std::byte> bytes(tensor.bytes());
    checkpoint.read(tensor, bytes);
  }
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::MemoryFile file;
  file.hold(regroup::text_of(data, size));
  regroup::refuse_or_read([&] {
    std::vector<regroup::Checkpoint::Part> parts;
    parts.push_back(regroup::open_weight_file(file.path()));
    const regroup::Checkpoint checkpoint(std::move(parts));
    for (const regroup::TensorInfo& tensor : checkpoint.tensors()) {
      regroup::read_small(checkpoint, tensor);
    }
  });
  return 0;
}

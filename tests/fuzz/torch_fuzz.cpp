// A pickle in an archive with correct headers, checksums and storages, and the same pickle in a
// file from before torch 1.6.
#include "formats/tensors/torch_checkpoint.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

void check_places(const Checkpoint::Part& part) {
  for (const TensorInfo& tensor : part.tensors) {
    if (tensor.begin > tensor.end || tensor.end > part.file.size()) {
      ::abort();
    }
  }
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::MemoryFile file;
  const std::string pickle(regroup::text_of(data, size));
  const std::string numbers(24, 'x');
  file.hold(regroup::torch_archive(pickle, {numbers}).bytes());
  regroup::refuse_or_read(
      [&] { regroup::check_places(regroup::open_torch_checkpoint(file.path())); });
  file.hold(regroup::LegacyTorchFile{pickle, {{"0", 6, numbers}}}.bytes());
  regroup::refuse_or_read(
      [&] { regroup::check_places(regroup::open_legacy_torch_checkpoint(file.path())); });
  return 0;
}

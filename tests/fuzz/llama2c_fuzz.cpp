// The seven numbers of a llama2.c header, in a sparse file of the length that the input gives.
#include "formats/llama2c/llama2c.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeader = 28;
  if (size < kHeader) {
    return 0;
  }
  // The bytes after the header give the file's length.
  std::uint64_t length = 0;
  for (std::size_t i = kHeader; i < size && i < kHeader + 6; ++i) {
    length = length << 8 | data[i];
  }
  static const regroup::MemoryFile file;
  if (!file.hold(regroup::text_of(data, kHeader), kHeader + length)) {
    return 0;
  }
  regroup::refuse_or_read([&] {
    const regroup::Checkpoint::Part part = regroup::open_llama2c(file.path());
    for (const regroup::TensorInfo& tensor : part.tensors) {
      if (tensor.end > part.file.size()) {
        ::abort();
      }
    }
  });
  return 0;
}

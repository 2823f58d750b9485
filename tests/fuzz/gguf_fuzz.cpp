// A GGUF file, and the model that its metadata describe.
#include "formats/model/model.h"
#include "formats/tensors/gguf.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!regroup::text_of(data, size).starts_with(regroup::kGgufMagic)) {
    return 0;
  }
  static const regroup::MemoryFile file;
  file.hold(regroup::text_of(data, size));
  regroup::refuse_or_read([&] { regroup::open_model(file.path()); });
  return 0;
}

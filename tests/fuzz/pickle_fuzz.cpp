// A pickled state dict.
#include "formats/tensors/unpickler.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  regroup::refuse_or_read([&] { regroup::read_state_dict(regroup::text_of(data, size), "fuzz"); });
  return 0;
}

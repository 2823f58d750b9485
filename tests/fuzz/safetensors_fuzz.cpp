// A safetensors header. The first eight bytes give the length of the data.
#include <cstring>

#include "formats/tensors/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t data_bytes = 0;
  if (size < sizeof(data_bytes)) {
    return 0;
  }
  std::memcpy(&data_bytes, data, sizeof(data_bytes));
  regroup::refuse_or_read([&] {
    std::vector<regroup::TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
    regroup::parse_safetensors_header(
        regroup::text_of(data + sizeof(data_bytes), size - sizeof(data_bytes)), data_bytes, "fuzz",
        tensors, metadata);
    std::uint64_t end = 0;
    for (const regroup::TensorInfo& tensor : tensors) {
      if (tensor.begin != end || tensor.bytes() != tensor_bytes(tensor.dtype, tensor.shape)) {
        ::abort();
      }
      end = tensor.end;
    }
    if (end != data_bytes) {
      ::abort();
    }
  });
  return 0;
}

// Common to both torch file formats: storages, and tensors as views of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/checkpoint/checkpoint.h"
#include "formats/torch/unpickler.h"

namespace regroup {

/// How torch names a dtype: by a storage class ("HalfStorage"), or if there is none by a
/// torch.dtype ("float8_e4m3fn") on an UntypedStorage. Exactly one is set.
struct TorchNumbers {
  std::string_view storage_class;
  std::string_view dtype;
};

/// Both empty if torch does not support the dtype.
TorchNumbers torch_numbers_of(DType dtype);

/// Bytes of one element of a storage class, 1 for UntypedStorage; 0 for an unknown one.
std::uint64_t torch_element_bytes(std::string_view storage_class);

/// The bytes of a file that hold one storage.
struct StorageBytes {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

/// Converts a pickled tensor to a TensorInfo. Error messages begin with `where` (file and tensor).
/// Throws kBadInput for an unknown element type, a storage shorter than the pickle says, a view
/// that exceeds its storage, and strides that repeat elements.
TensorInfo place_torch_tensor(const std::string& name, const PickledTensor& pickled,
                              const StorageBytes& storage, const std::string& where);

}  // namespace regroup

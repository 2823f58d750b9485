// What torch's two file formats have in common: storages, and the tensors that are views of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/checkpoint/checkpoint.h"
#include "formats/torch/unpickler.h"

namespace regroup {

/// How torch names the numbers of a dtype: by a storage class ("HalfStorage"), or where there is
/// none by a torch.dtype ("float8_e4m3fn") on an UntypedStorage. Exactly one is not empty.
struct TorchNumbers {
  std::string_view storage_class;
  std::string_view dtype;
};

/// Both empty where torch has no such numbers.
TorchNumbers torch_numbers_of(DType dtype);

/// Bytes of one element of a storage class, 1 for UntypedStorage; 0 for an unknown one.
std::uint64_t torch_element_bytes(std::string_view storage_class);

/// The bytes of a file that hold one storage.
struct StorageBytes {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

/// A pickled tensor as one of a checkpoint. Throws kBadInput, each message opened by `where` (file
/// and tensor): for unknown numbers, a storage shorter than the pickle says, a view that leaves its
/// storage, and strides that repeat elements.
TensorInfo place_torch_tensor(const std::string& name, const PickledTensor& pickled,
                              const StorageBytes& storage, const std::string& where);

}  // namespace regroup

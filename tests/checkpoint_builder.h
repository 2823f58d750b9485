// Checkpoints made on the spot: well-formed ones out of named tensors, and malformed files spelled
// out. Written without the project's own writer, so that reader and writer cannot agree on a fault.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/dtype/dtype.h"

namespace regroup {

/// A file that says its header is `length` bytes long and goes on with `rest`.
std::string file_with_length(std::uint64_t length, std::string_view rest);

/// A file with that header, its true length before it and `data_bytes` zeros after it.
std::string file_with_header(std::string_view header, std::size_t data_bytes = 0);

/// A tensor in memory.
struct BuiltTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;
};

/// A tensor of that shape with the given values (F16, BF16, F32, F64).
BuiltTensor tensor_of(std::string name, DType dtype, Shape shape, std::span<const double> values);

/// A tensor of multiples of 1/4 from -2 to 2 that differ from tensor to tensor: exact in every
/// dtype, and so are their sums.
BuiltTensor varied_tensor(std::string name, DType dtype, Shape shape);

/// All values of a tensor.
std::vector<double> values_of(const BuiltTensor& tensor);
std::vector<double> values_of(const Checkpoint& checkpoint, std::string_view name);

/// The bytes of one tensor of an open checkpoint.
std::string bytes_of(const Checkpoint& checkpoint, std::string_view name);

/// Writes tensors in that order as one safetensors file.
void put_checkpoint(const std::filesystem::path& file, std::span<const BuiltTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace regroup

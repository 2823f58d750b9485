// Checkpoints made in tests: well-formed ones from named tensors, and malformed files byte by byte.
// Independent of the project's writer, so that reader and writer cannot share an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensors/checkpoint.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/dtype.h"

namespace regroup {

/// A file whose header claims `length` bytes, followed by `rest`.
std::string file_with_length(std::uint64_t length, std::string_view rest);

/// A file with this header, its length before it and `data_bytes` zeros after it.
std::string file_with_header(std::string_view header, std::size_t data_bytes = 0);

/// A tensor in memory.
struct BuiltTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;
};

/// A tensor of this shape with the given values (F16, BF16, F32, F64).
BuiltTensor tensor_of(std::string name, DType dtype, Shape shape, std::span<const double> values);

/// A tensor of multiples of 1/4 from -2 to 2 that depend on its name. They and their sums are exact
/// in every dtype.
BuiltTensor varied_tensor(std::string name, DType dtype, Shape shape);

/// All values of a tensor.
std::vector<double> values_of(const BuiltTensor& tensor);
std::vector<double> values_of(const Checkpoint& checkpoint, std::string_view name);

/// The bytes of one tensor of an open checkpoint.
std::string bytes_of(const Checkpoint& checkpoint, std::string_view name);

/// The bytes of a string.
std::span<const std::byte> as_span(const std::string& bytes);

/// What a writer of these tensors is told about them beforehand.
std::vector<OutputTensor> announced(std::span<const BuiltTensor> tensors);

/// Writes tensors in this order as one safetensors file.
void put_checkpoint(const std::filesystem::path& file, std::span<const BuiltTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace regroup

#include "tests/checkpoint_builder.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/file_tree.h"

namespace regroup {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::int64_t elements_of(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    product *= size;
  }
  return product;
}

}  // namespace

std::string file_with_length(std::uint64_t length, std::string_view rest) {
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(rest);
}

std::string file_with_header(std::string_view header, std::size_t data_bytes) {
  return file_with_length(header.size(), header) + std::string(data_bytes, '\0');
}

BuiltTensor tensor_of(std::string name, DType dtype, Shape shape, std::span<const double> values) {
  BuiltTensor tensor{std::move(name), dtype, std::move(shape), {}};
  tensor.bytes.resize(values.size() * bits_of(dtype) / 8);
  encode_from_double(dtype, values, std::as_writable_bytes(std::span(tensor.bytes)));
  return tensor;
}

BuiltTensor varied_tensor(std::string name, DType dtype, Shape shape) {
  std::uint64_t state = 0xcbf29ce484222325U;
  for (const char letter : name) {
    state = (state ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  std::vector<double> values(static_cast<std::size_t>(elements_of(shape)));
  for (double& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<double>((state >> 33) % 17) / 4.0 - 2.0;
  }
  return tensor_of(std::move(name), dtype, std::move(shape), values);
}

std::vector<double> values_of(const BuiltTensor& tensor) {
  std::vector<double> values(tensor.bytes.size() * 8 / bits_of(tensor.dtype));
  decode_to_double(tensor.dtype, std::as_bytes(std::span(tensor.bytes)), values);
  return values;
}

std::vector<double> values_of(const Checkpoint& checkpoint, std::string_view name) {
  const TensorInfo& info = checkpoint.at(name);
  return values_of(BuiltTensor{info.name, info.dtype, info.shape, bytes_of(checkpoint, name)});
}

std::string bytes_of(const Checkpoint& checkpoint, std::string_view name) {
  const TensorInfo& info = checkpoint.at(name);
  std::string bytes(info.bytes(), '\0');
  checkpoint.read(info, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::span<const std::byte> as_span(const std::string& bytes) {
  return std::as_bytes(std::span(bytes));
}

std::vector<OutputTensor> announced(std::span<const BuiltTensor> tensors) {
  std::vector<OutputTensor> outputs;
  for (const BuiltTensor& tensor : tensors) {
    outputs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return outputs;
}

void put_checkpoint(const std::filesystem::path& file, std::span<const BuiltTensor> tensors,
                    const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> entries{
      fmt::format(R"("__metadata__":{})", nlohmann::json(metadata).dump())};
  std::string data;
  for (const BuiltTensor& tensor : tensors) {
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  quoted(tensor.name), name_of(tensor.dtype),
                                  fmt::join(tensor.shape, ","), data.size(),
                                  data.size() + tensor.bytes.size()));
    data += tensor.bytes;
  }
  put_file(file, file_with_header(fmt::format("{{{}}}", fmt::join(entries, ","))) + data);
}

}  // namespace regroup

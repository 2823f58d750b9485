#include "formats/tensors/gguf_writer.h"

#include <cstring>
#include <string>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/tensors/gguf.h"

namespace regroup {
namespace {

template <typename T>
void put(std::string& out, T value) {
  const std::size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

void put_entry(std::string& out, const GgufMetadata::Entry& entry) {
  put_string(out, entry.key);
  put(out, static_cast<std::uint32_t>(entry.type));
  out += entry.bytes;
}

void put_tensor(std::string& out, const OutputTensor& tensor, std::uint64_t offset) {
  const auto type = ggml_type_of(tensor.dtype);
  if (!type || tensor.shape.size() > kMaxGgufDimensions ||
      tensor.name.size() > kMaxGgufTensorName) {
    throw_usage(
        "tensor {} ({} {}) does not fit a GGUF file, which holds ggml's types, up to {} "
        "dimensions and names up to {} bytes",
        printable(tensor.name), name_of(tensor.dtype), text_of(tensor.shape), kMaxGgufDimensions,
        kMaxGgufTensorName);
  }
  put_string(out, tensor.name);
  put(out, static_cast<std::uint32_t>(tensor.shape.size()));
  for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
    put(out, *size);
  }
  put(out, *type);
  put(out, offset);
}

std::uint64_t pad(std::uint64_t offset, std::uint64_t alignment) {
  const auto padded = padded_to(offset, alignment);
  if (!padded) {
    throw_usage("the tensors' bytes overflow a GGUF file's offsets");
  }
  return *padded;
}

struct GgufLayout {
  std::string header;
  std::vector<std::uint64_t> offsets;  // in the data section
  std::uint64_t data_bytes = 0;        // padding included
};

// The part of a file before the descriptions of its tensors.
std::string encode_metadata(const GgufMetadata& metadata, std::size_t tensors) {
  std::string header(kGgufMagic);
  put(header, kGgufVersion);
  put<std::uint64_t>(header, tensors);
  put<std::uint64_t>(header, metadata.entries().size());
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    put_entry(header, entry);
  }
  return header;
}

GgufLayout lay_out(const GgufMetadata& metadata, std::span<const OutputTensor> tensors,
                   std::uint64_t alignment) {
  GgufLayout layout;
  layout.header = encode_metadata(metadata, tensors.size());
  for (const OutputTensor& tensor : tensors) {
    layout.offsets.push_back(layout.data_bytes);
    put_tensor(layout.header, tensor, layout.data_bytes);
    const std::uint64_t bytes = tensor_bytes(tensor.dtype, tensor.shape);
    layout.data_bytes = pad(layout.data_bytes + bytes, alignment);
  }
  layout.header.resize(pad(layout.header.size(), alignment));
  return layout;
}

}  // namespace

std::string encode_gguf(const GgufMetadata& metadata) {
  return lay_out(metadata, {}, gguf_alignment(metadata)).header;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::span<const OutputTensor> tensors) {
  const GgufLayout layout = lay_out(metadata, tensors, gguf_alignment(metadata));
  check_free_space(path.parent_path(), layout.header.size() + layout.data_bytes);
  File& file = add_file(path);
  file.write_at(0, std::as_bytes(std::span(layout.header)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    place(tensors[i].name, {0, layout.header.size() + layout.offsets[i],
                            tensor_bytes(tensors[i].dtype, tensors[i].shape), false});
  }
  // Padding between tensors is left unwritten. After the last tensor the file must be extended to
  // include it.
  if (layout.data_bytes > 0) {
    const std::byte zero{0};
    file.write_at(layout.header.size() + layout.data_bytes - 1, std::span(&zero, 1));
  }
}

void overwrite_metadata(const std::filesystem::path& path, std::size_t tensors,
                        const GgufMetadata& before, const GgufMetadata& after) {
  const std::string header = encode_metadata(after, tensors);
  const std::size_t present = encode_metadata(before, tensors).size();
  if (header.size() != present) {
    throw_usage("metadata of {} bytes in place of {}", header.size(), present);
  }
  File file = File::open_or_create(path);
  file.write_at(0, std::as_bytes(std::span(header)));
  file.sync_and_close();
}

}  // namespace regroup

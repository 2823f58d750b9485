// GGUF models in several parts, as llama.cpp's gguf-split makes them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/gguf.h"
#include "tests/file_tree.h"
#include "tests/gguf_builder.h"

namespace regroup {

inline std::string gguf_part_name(std::size_t number, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.gguf", number, count);
}

inline GgufMetadata::Entry gguf_u16_entry(std::string_view key, std::uint16_t value) {
  return {std::string(key),
          GgufType::kU16,
          {static_cast<char>(value & 0xffU), static_cast<char>(value >> 8)}};
}

/// What a part says of itself.
struct GgufPartKeys {
  std::uint16_t number = 0;
  std::uint16_t count = 0;
  std::uint32_t tensors = 0;

  void set(GgufMetadata& metadata) const {
    metadata.set(gguf_u16_entry("split.no", number));
    metadata.set(gguf_u16_entry("split.count", count));
    metadata.set({"split.tensors.count", GgufType::kI32, gguf_u32(tensors)});
  }
};

/// Writes tensors [begin, end) of a GGUF file as one part. `keys` are the first part's keys, or
/// none.
inline void put_gguf_part(const std::filesystem::path& path, const Checkpoint& source,
                          GgufMetadata keys, const GgufPartKeys& part, std::size_t begin,
                          std::size_t end) {
  std::filesystem::remove(path);
  part.set(keys);
  std::vector<OutputTensor> tensors;
  for (std::size_t i = begin; i < end; ++i) {
    const TensorInfo& tensor = source.tensors()[i];
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  GgufWriter writer(path, keys, tensors);
  for (std::size_t i = begin; i < end; ++i) {
    writer.copy(source.tensors()[i].name, source, source.tensors()[i]);
  }
  writer.finish();
}

/// Splits a GGUF file into parts of about as many tensors each.
inline void split_gguf(const std::filesystem::path& source, const std::filesystem::path& directory,
                       std::uint16_t count) {
  std::filesystem::create_directories(directory);
  GgufFile file = open_gguf(source);
  const GgufMetadata metadata = file.metadata;
  std::vector<Checkpoint::Part> parts;
  parts.push_back(std::move(file.part));
  const Checkpoint whole(std::move(parts));
  const std::size_t tensors = whole.tensors().size();
  for (std::uint16_t i = 0; i < count; ++i) {
    put_gguf_part(directory / gguf_part_name(i + 1U, count), whole,
                  i == 0 ? metadata : GgufMetadata(),
                  {i, count, static_cast<std::uint32_t>(tensors)}, tensors * i / count,
                  tensors * (i + 1U) / count);
  }
}

}  // namespace regroup

#include "tests/gguf_builder.h"

#include <cstring>

namespace regroup {
namespace {

template <typename T>
std::string encode(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

}  // namespace

std::string gguf_u32(std::uint32_t value) { return encode(value); }

std::string gguf_u64(std::uint64_t value) { return encode(value); }

std::string gguf_string(std::string_view text) { return gguf_u64(text.size()) + std::string(text); }

std::string gguf_entry(std::string_view key, std::uint32_t type, std::string_view value) {
  return gguf_string(key) + gguf_u32(type) + std::string(value);
}

std::string gguf_array_entry(std::string_view key, std::uint32_t type, std::uint64_t size,
                             std::string_view elements) {
  return gguf_entry(key, 9, gguf_u32(type) + gguf_u64(size) + std::string(elements));
}

std::string gguf_tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                        std::uint32_t type, std::uint64_t offset) {
  std::string text = gguf_string(name) + gguf_u32(static_cast<std::uint32_t>(dimensions.size()));
  for (const std::uint64_t size : dimensions) {
    text += gguf_u64(size);
  }
  return text + gguf_u32(type) + gguf_u64(offset);
}

std::string GgufPieces::text() const {
  std::string text = magic + gguf_u32(version) + gguf_u64(tensors.size() + more_tensors) +
                     gguf_u64(entries.size() + more_entries);
  for (const std::string& entry : entries) {
    text += entry;
  }
  for (const std::string& tensor : tensors) {
    text += tensor;
  }
  text.append((alignment - text.size() % alignment) % alignment, '\0');
  return text.append(data_bytes, '\0');
}

}  // namespace regroup

// GGUF files spelled out piece by piece, without the project's own writer, so that any fault can be
// put in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// A number as it lies in the file.
std::string gguf_u32(std::uint32_t value);
std::string gguf_u64(std::uint64_t value);
/// A string with its length before it.
std::string gguf_string(std::string_view text);

/// A key and a value of a type, the value already encoded.
std::string gguf_entry(std::string_view key, std::uint32_t type, std::string_view value);
/// The same for an array of `size` elements of a type.
std::string gguf_array_entry(std::string_view key, std::uint32_t type, std::uint64_t size,
                             std::string_view elements);

/// A tensor's description; dimensions in the file's order, innermost first.
std::string gguf_tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                        std::uint32_t type, std::uint64_t offset);

/// A whole file out of such pieces.
struct GgufPieces {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> entries = {};
  std::vector<std::string> tensors = {};
  std::size_t data_bytes = 0;      ///< zeros after the padding
  std::size_t alignment = 32;      ///< of the data
  std::uint64_t more_tensors = 0;  ///< to lie about their number
  std::uint64_t more_entries = 0;

  std::string text() const;
};

}  // namespace regroup

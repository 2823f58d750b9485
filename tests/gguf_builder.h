// GGUF files assembled piece by piece, independent of the project's writer, so that tests can build
// any fault.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// A number as stored in the file.
std::string gguf_u32(std::uint32_t value);
std::string gguf_u64(std::uint64_t value);
/// A string after its length.
std::string gguf_string(std::string_view text);

/// A key with an encoded value of the given type.
std::string gguf_entry(std::string_view key, std::uint32_t type, std::string_view value);
/// The same for an array of `size` elements of the given type.
std::string gguf_array_entry(std::string_view key, std::uint32_t type, std::uint64_t size,
                             std::string_view elements);

/// A tensor's description. Dimensions are in the file's order, innermost first.
std::string gguf_tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                        std::uint32_t type, std::uint64_t offset);

/// A whole file of such pieces.
struct GgufPieces {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> entries = {};
  std::vector<std::string> tensors = {};
  std::size_t data_bytes = 0;      ///< zeros after the padding
  std::size_t alignment = 32;      ///< of the data
  std::uint64_t more_tensors = 0;  ///< added to the number of tensors in the header
  std::uint64_t more_entries = 0;

  std::string text() const;
};

}  // namespace regroup

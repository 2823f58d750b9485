// What the first bytes of a file say about it, where text or token ids are expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace regroup {

/// A format that is neither text nor token ids.
struct FileKind {
  std::string_view name;     ///< for example "a Parquet file"
  std::string_view reader;   ///< a shell command that writes the text in FILE; empty: none is known
  bool hidden_text = false;  ///< text in another encoding
};

/// The format that `start`, the first bytes of a file (64 KiB are enough), belongs to; nothing if
/// none is recognised.
std::optional<FileKind> kind_of_bytes(std::string_view start);

/// Whether the bytes are mostly text, in an encoding that extends ASCII.
bool is_text(std::string_view sample);

/// Whether the bytes are no text of any such encoding: some in a hundred are control characters.
bool is_binary(std::string_view sample);

}  // namespace regroup

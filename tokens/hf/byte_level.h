// GPT-2's way to write bytes as characters, so that every byte is printable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace regroup {

/// Each byte of `text` as its character: "é " becomes "Ã©Ġ".
std::string byte_level_text(std::string_view text);

/// Appends it to `result`.
void append_byte_level(std::string_view text, std::string& result);

}  // namespace regroup

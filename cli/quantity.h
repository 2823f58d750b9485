// Amounts as people type them: "24GiB", "3.3TB/s".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// Bytes out of a number with a unit: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB
/// (powers of 1024), in any case; "/s" may follow. Throws kUsage naming `option` for anything else,
/// for none at all and for more than 2^60.
std::uint64_t parse_bytes(std::string_view option, std::string_view text);

/// A whole number from 1 to 2^40; k and M multiply by 1024 and 1024² ("128k"). Throws kUsage naming
/// `option` for anything else.
std::uint64_t parse_count(std::string_view option, std::string_view text);

/// Several of them between commas.
std::vector<std::uint64_t> parse_counts(std::string_view option, std::string_view text);

/// `text` as a shell takes it for one word.
std::string shell_quoted(const std::string& text);

}  // namespace regroup

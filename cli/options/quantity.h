// Parses numbers for all options, on the command line and in config files: counts ("8192", "8k"),
// sizes ("24GiB", "3.3TB/s") and other numbers ("3e-4").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// Upper limits of counts. Code that multiplies counts checks for overflow itself.
inline constexpr std::uint64_t kMostCount = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 50;   ///< of a pretraining run
inline constexpr std::uint64_t kMostContext = std::uint64_t{1} << 24;  ///< tokens in a window
inline constexpr std::uint64_t kMostBatch = std::uint64_t{1} << 20;    ///< windows at a time
inline constexpr std::uint64_t kMostHeads = std::uint64_t{1} << 16;
inline constexpr std::uint64_t kMostTokenId = (std::uint64_t{1} << 31) - 1;
inline constexpr std::uint64_t kMostThreads = 1024;

struct CountRange {
  std::uint64_t least = 1, most = kMostCount;
};

inline constexpr CountRange kAnySeed{0, ~std::uint64_t{0}};
inline constexpr CountRange kAnyToken{0, kMostTokenId};

struct NumberRange {
  double least = 0.0, most = 1.0;
  bool least_allowed = true;  ///< false: only numbers above it
};

/// A whole number in that range; k and M multiply by 1024 and 1024² ("128k"). For anything else it
/// throws kUsage naming `option`, the text and the range.
std::uint64_t parse_count(std::string_view option, std::string_view text, CountRange range = {});

/// Comma-separated whole numbers.
std::vector<std::uint64_t> parse_counts(std::string_view option, std::string_view text,
                                        CountRange range = {});

/// Bytes from a number with a unit: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers
/// of 1024), upper or lower case; "/s" may follow. Throws kUsage naming `option` for anything else,
/// including a number without a unit, less than a byte and more than 2^60 bytes.
std::uint64_t parse_bytes(std::string_view option, std::string_view text);

/// The same, or a percentage of `whole` (bytes): "25%".
std::uint64_t parse_bytes_or_share(std::string_view option, std::string_view text,
                                   std::uint64_t whole);

/// A number in that range. Throws kUsage as parse_count() does, also for NaN and infinities.
double parse_number(std::string_view option, std::string_view text, NumberRange range);

/// `text` quoted so that a POSIX shell reads it as one word.
std::string shell_quoted(const std::string& text);

}  // namespace regroup

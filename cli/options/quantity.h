// Amounts as people type them, read in one way for every option of every command and in config
// files: counts ("8192", "8k"), sizes ("24GiB", "3.3TB/s") and other numbers ("3e-4").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// The most that counts of one kind can be. Products of them are checked where they are made.
inline constexpr std::uint64_t kMostCount = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 50;   ///< of a pretraining
inline constexpr std::uint64_t kMostContext = std::uint64_t{1} << 24;  ///< tokens of one window
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
  bool least_allowed = true;  ///< else only what is above it
};

/// A whole number in that range; k and M multiply by 1024 and 1024² ("128k"). Throws kUsage naming
/// `option`, the text and the range for anything else.
std::uint64_t parse_count(std::string_view option, std::string_view text, CountRange range = {});

/// Several of them between commas.
std::vector<std::uint64_t> parse_counts(std::string_view option, std::string_view text,
                                        CountRange range = {});

/// Bytes out of a number with a unit: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB
/// (powers of 1024), in any case; "/s" may follow. Throws kUsage naming `option` for anything else,
/// a number without a unit included, for less than a byte and for more than 2^60.
std::uint64_t parse_bytes(std::string_view option, std::string_view text);

/// The same, or a share of `whole`: "25%".
std::uint64_t parse_bytes_or_share(std::string_view option, std::string_view text,
                                   std::uint64_t whole);

/// A number in that range. Throws kUsage like parse_count(), for NaN and infinities too.
double parse_number(std::string_view option, std::string_view text, NumberRange range);

/// `text` as a shell takes it for one word.
std::string shell_quoted(const std::string& text);

}  // namespace regroup

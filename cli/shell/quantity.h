// Numbers and sizes as users write them, and names of outputs.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/command.h"

namespace regroup {

// Parses numbers for all options, on the command line and in config files: counts ("8192", "8k"),
// sizes ("24GiB", "3.3TB/s") and other numbers ("3e-4").

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
/// of 1024), upper or lower case. Throws kUsage naming `option` for anything else, including a
/// number without a unit, less than a byte and more than 2^60 bytes.
std::uint64_t parse_bytes(std::string_view option, std::string_view text);

/// Bytes per second: "3.35TB/s".
std::uint64_t parse_rate(std::string_view option, std::string_view text);

/// The same, or a percentage of `whole` (bytes): "25%".
std::uint64_t parse_bytes_or_share(std::string_view option, std::string_view text,
                                   std::uint64_t whole);

/// A number in that range. Throws kUsage as parse_count() does, also for NaN and infinities.
double parse_number(std::string_view option, std::string_view text, NumberRange range);

/// `text` quoted so that a POSIX shell reads it as one word.
std::string shell_quoted(const std::string& text);

// Names of values in the help. cli/shell/config_file.cpp recognises numbers by them.
inline constexpr const char* kCount = "COUNT";
inline constexpr const char* kCounts = "COUNT,...";
inline constexpr const char* kNumber = "NUMBER";
inline constexpr const char* kSize = "SIZE";
inline constexpr const char* kSizeOrShare = "SIZE|SHARE";
inline constexpr const char* kRate = "RATE";

/// An option with one value of that kind; `take` gets the name of the option, for messages, and the
/// value as typed.
Option add_parsed(
    Command command, const std::string& names, const std::string& text, const char* kind,
    const std::function<void(const std::string& name, const std::string& typed)>& take);

namespace number_options {

template <typename Value>
std::string text_of_default(const Value& value) {
  if constexpr (std::floating_point<Value>) {
    return fmt::format("{:g}", value);
  } else if constexpr (std::integral<Value>) {
    return fmt::format("{}", value);
  } else {
    static_assert(requires { value.has_value(); });
    return "";  // an optional number, whose description states the default
  }
}

}  // namespace number_options

/// A whole number. `value` is an integer or an optional integer and must outlive `command`. The
/// help shows its current value as the default.
template <typename Value>
Option add_count(Command command, const std::string& names, Value& value, const std::string& text,
                 CountRange range = {}) {
  using Integer = typename decltype(std::optional(value))::value_type;  // of either
  const auto take = [&value, range](const std::string& name, const std::string& typed) {
    value = static_cast<Integer>(parse_count(name, typed, range));
  };
  return add_parsed(command, names, text, kCount, take)
      .default_text(number_options::text_of_default(value));
}

/// Comma-separated whole numbers: "512,1k".
template <std::integral Integer>
Option add_counts(Command command, const std::string& names, std::vector<Integer>& values,
                  const std::string& text, CountRange range = {}) {
  const auto take = [&values, range](const std::string& name, const std::string& typed) {
    const std::vector<std::uint64_t> counts = parse_counts(name, typed, range);
    values.assign(counts.begin(), counts.end());
  };
  return add_parsed(command, names, text, kCounts, take)
      .default_text(fmt::format("{}", fmt::join(values, ",")));
}

/// A real number in a range; `value` is a double or an optional double.
template <typename Value>
Option add_number(Command command, const std::string& names, Value& value, const std::string& text,
                  NumberRange range) {
  const auto take = [&value, range](const std::string& name, const std::string& typed) {
    value = parse_number(name, typed, range);
  };
  return add_parsed(command, names, text, kNumber, take)
      .default_text(number_options::text_of_default(value));
}

/// Bytes with a unit: "24GiB". The help shows no default unless default_text() is called.
template <typename Value>
Option add_size(Command command, const std::string& names, Value& value, const std::string& text) {
  return add_parsed(command, names, text, kSize,
                    [&value](const std::string& name, const std::string& typed) {
                      value = parse_bytes(name, typed);
                    });
}

/// Bytes per second.
template <typename Value>
Option add_rate(Command command, const std::string& names, Value& value, const std::string& text) {
  return add_parsed(command, names, text, kRate,
                    [&value](const std::string& name, const std::string& typed) {
                      value = parse_rate(name, typed);
                    });
}

/// --device, the same in every command.
Option add_device_option(Command command, std::string& device,
                         const std::string& text = "cpu, cuda or cuda:N");
/// --threads, the same in every command. `threads` stays 0 for one per core.
Option add_threads_option(Command command, int& threads,
                          const std::string& text = "CPU threads (default: one per core)");

/// Whether an output of that name is a GGUF file: "x.gguf", also in capital letters.
bool names_gguf_file(const std::filesystem::path& path);

/// Throws kUsage if `path` has a known file extension that is not one of `endings`: a directory
/// named x.gguf is a mistake. `what` is the kind of output, for the message.
void check_output_name(const std::filesystem::path& path, std::string_view what,
                       std::initializer_list<std::string_view> endings);

/// The same for a directory, whose name may have none of the known file extensions.
void check_directory_name(const std::filesystem::path& path);

}  // namespace regroup

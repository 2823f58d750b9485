// Adds options that take numbers. Each has a range, all are parsed by cli/options/quantity.h, and
// the error for a number out of range names the option.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/options/command.h"
#include "cli/options/quantity.h"

namespace regroup {

// Names of values in the help. cli/options/config_file.cpp recognises numbers by them.
inline constexpr const char* kCount = "COUNT";
inline constexpr const char* kCounts = "COUNT,...";
inline constexpr const char* kNumber = "NUMBER";
inline constexpr const char* kSize = "SIZE";
inline constexpr const char* kSizeOrShare = "SIZE|SHARE";

namespace number_options {

Option add_counts(Command command, const std::string& names, const std::string& text,
                  CountRange range,
                  const std::function<void(const std::vector<std::uint64_t>&)>& assign);
Option add_one_count(Command command, const std::string& names, const std::string& text,
                     CountRange range, const std::function<void(std::uint64_t)>& assign);
Option add_one_number(Command command, const std::string& names, const std::string& text,
                      NumberRange range, const std::function<void(double)>& assign);

template <std::integral Integer>
std::string text_of_default(const Integer& value) {
  return fmt::format("{}", value);
}
inline std::string text_of_default(double value) { return fmt::format("{:g}", value); }
template <typename Value>
std::string text_of_default(const std::optional<Value>&) {
  return "";  // the description states the default
}

template <typename Value>
struct ValueIn {
  using Type = Value;
};
template <typename Value>
struct ValueIn<std::optional<Value>> {
  using Type = Value;
};

}  // namespace number_options

/// A whole number. `value` is an integer or an optional integer and must outlive `command`. The
/// help shows its current value as the default.
template <typename Value>
Option add_count(Command command, const std::string& names, Value& value, const std::string& text,
                 CountRange range = {}) {
  using Integer = typename number_options::ValueIn<Value>::Type;
  return number_options::add_one_count(
             command, names, text, range,
             [&value](std::uint64_t count) { value = static_cast<Integer>(count); })
      .default_text(number_options::text_of_default(value));
}

/// Comma-separated whole numbers: "512,1k".
template <std::integral Integer>
Option add_counts(Command command, const std::string& names, std::vector<Integer>& values,
                  const std::string& text, CountRange range = {}) {
  return number_options::add_counts(command, names, text, range,
                                    [&values](const std::vector<std::uint64_t>& counts) {
                                      values.assign(counts.begin(), counts.end());
                                    })
      .default_text(fmt::format("{}", fmt::join(values, ",")));
}

/// A real number in a range; `value` is a double or an optional double.
template <typename Value>
Option add_number(Command command, const std::string& names, Value& value, const std::string& text,
                  NumberRange range) {
  return number_options::add_one_number(command, names, text, range,
                                        [&value](double number) { value = number; })
      .default_text(number_options::text_of_default(value));
}

/// Bytes with a unit: "24GiB". The help shows no default unless default_text() is called.
Option add_size(Command command, const std::string& names, std::uint64_t& value,
                const std::string& text);
Option add_size(Command command, const std::string& names, std::optional<std::uint64_t>& value,
                const std::string& text);

/// --threads, the same in every command. `threads` stays 0 for one per core.
Option add_threads_option(Command command, int& threads,
                          const std::string& text = "CPU threads (default: one per core)");

}  // namespace regroup

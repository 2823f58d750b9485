// Formats numbers and wraps text for people, and dumps JSON for programs. Includes fmt, whose
// format() and join() make the rest of a text.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/json.h"

namespace regroup {

/// "512 B", "2.5 MiB", "12.6 GiB": powers of 1024, for memory and for files.
std::string text_of_bytes(double bytes);
std::string text_of_bytes(std::integral auto bytes) {
  return text_of_bytes(static_cast<double>(bytes));
}
/// "6.74 B", "124 M", "812 K": a count of parameters or tokens.
std::string text_of_count(double count);
std::string text_of_count(std::integral auto count) {
  return text_of_count(static_cast<double>(count));
}
/// "12,345".
std::string with_thousands(std::uint64_t number);
/// e to the power of a loss in nats per token, with four digits: "34.17", "49,420".
std::string text_of_perplexity(double loss);
/// "42 s", "3 min 20 s", "2 h 05 min".
std::string text_of_duration(double seconds);
/// Names and values, both plain text. Those without a value are not shown; one without a name
/// continues the one before it.
using Facts = std::vector<std::pair<std::string, std::string>>;
/// A line for each, names padded to `indent` columns; no newline at the end.
std::string text_of_facts(const Facts& facts, std::size_t indent);
/// The number of code points without the escape sequences of colours, which is the number of
/// columns unless some are wide.
std::size_t width_of(std::string_view text);
/// The parts between separators, at least one; a part may be empty.
std::vector<std::string_view> split(std::string_view text, char separator);
/// The first `count` code points of `text`.
std::string code_points(std::string_view text, std::size_t count);
/// Breaks each line between words so that it has at most `columns` code points, and indents the
/// continuation lines. A number stays on the line of its unit, and words that are too long stay
/// whole.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

/// What `result_of`, a function or a member, makes of each of `items`.
template <typename Items, typename ResultOf>
auto mapped(const Items& items, const ResultOf& result_of) {
  using Result = std::invoke_result_t<const ResultOf&, decltype(*std::begin(items))>;
  std::vector<std::decay_t<Result>> results;
  for (const auto& item : items) {
    results.push_back(std::invoke(result_of, item));
  }
  return results;
}

/// The same as text, with `separator` between them.
template <typename Items, typename TextOf>
std::string joined(const Items& items, std::string_view separator, const TextOf& text_of) {
  return fmt::format("{}", fmt::join(mapped(items, text_of), separator));
}

/// The same as a list of JSON.
template <typename Items, typename JsonOf>
Json json_list(const Items& items, const JsonOf& json_of) {
  return Json(mapped(items, json_of));
}

/// A report as JSON in ASCII: control and non-ASCII characters are escaped, which protects
/// terminals, and bytes that are not UTF-8 are replaced. NaN and infinities, which JSON lacks,
/// become "nan", "inf" and "-inf", since null means unknown.
std::string text_of_json(const Json& report);

}  // namespace regroup

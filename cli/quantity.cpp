#include "cli/quantity.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "formats/error.h"
#include "formats/printable.h"

namespace regroup {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// Bytes of a unit, 0 for what is none.
double bytes_of_unit(const std::string& unit) {
  constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{{"", 1},
                                                                        {"b", 1},
                                                                        {"kb", 1e3},
                                                                        {"mb", 1e6},
                                                                        {"gb", 1e9},
                                                                        {"tb", 1e12},
                                                                        {"kib", 1024.0},
                                                                        {"mib", 1048576.0},
                                                                        {"gib", 1073741824.0},
                                                                        {"tib", 1099511627776.0}}};
  const auto found = std::find_if(kUnits.begin(), kUnits.end(),
                                  [&](const auto& known) { return known.first == unit; });
  return found == kUnits.end() ? 0.0 : found->second;
}

}  // namespace

std::uint64_t parse_bytes(std::string_view option, std::string_view text) {
  double number = 0.0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit = lower({end, text.data() + text.size()});
  if (unit.ends_with("/s")) {
    unit.erase(unit.size() - 2);
  }
  unit.erase(0, unit.find_first_not_of(' '));
  const double bytes = fault == std::errc() ? number * bytes_of_unit(unit) : 0.0;
  if (!(bytes >= 1.0 && bytes <= 0x1p60)) {
    throw_usage("{}: \"{}\" is no amount of bytes such as 24GiB, 80GB or 3.3TB/s", option,
                printable(text));
  }
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t parse_count(std::string_view option, std::string_view text) {
  std::uint64_t count = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string unit = lower({end, text.data() + text.size()});
  const std::uint64_t factor = unit.empty() ? 1 : unit == "k" ? 1024 : unit == "m" ? 1048576 : 0;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  if (fault != std::errc() || factor == 0 || count == 0 || count > kMost / factor) {
    throw_usage("{}: \"{}\" is no number of 1 or more, such as 8192 or 8k", option,
                printable(text));
  }
  return count * factor;
}

std::vector<std::uint64_t> parse_counts(std::string_view option, std::string_view text) {
  std::vector<std::uint64_t> counts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    counts.push_back(parse_count(option, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return counts;
}

std::string shell_quoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("/._-+=:@,%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace regroup

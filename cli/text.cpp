#include "cli/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace regroup {
namespace {

template <std::size_t N>
std::string scaled(double value, double base, const std::array<std::string_view, N>& units) {
  std::size_t unit = 0;
  while (unit + 1 < N && value >= base) {
    value /= base;
    ++unit;
  }
  const int digits = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  std::string number = fmt::format("{:.{}f}", value, digits);
  if (digits > 0) {  // "512.00" reads better as "512"
    number.erase(number.find_last_not_of('0') + 1);
    number.erase(number.find_last_not_of('.') + 1);
  }
  return units[unit].empty() ? number : fmt::format("{} {}", number, units[unit]);
}

using Runs = std::vector<std::pair<std::int64_t, std::size_t>>;  // heads and layers

Runs runs_of(const std::vector<std::int64_t>& heads) {
  Runs runs;
  for (const std::int64_t count : heads) {
    if (runs.empty() || runs.back().first != count) {
      runs.emplace_back(count, 0);
    }
    ++runs.back().second;
  }
  return runs;
}

}  // namespace

std::string text_of_bytes(double bytes) {
  return scaled(bytes, 1000, std::array<std::string_view, 5>{"B", "kB", "MB", "GB", "TB"});
}

std::string text_of_memory(double bytes) {
  return scaled(bytes, 1024, std::array<std::string_view, 5>{"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string text_of_count(double count) {
  return scaled(count, 1000, std::array<std::string_view, 5>{"", "K", "M", "B", "T"});
}

std::string with_thousands(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string text_of_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (seconds < 10) {
    return fmt::format("{:.1f} s", seconds);
  }
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string text_of_heads(const std::vector<std::int64_t>& heads) {
  constexpr std::size_t kMostRuns = 6;
  Runs runs = runs_of(heads);
  if (runs.size() == 1) {
    return std::to_string(heads.front());
  }
  const bool many = runs.size() > kMostRuns;
  if (many) {
    std::vector<std::int64_t> sorted = heads;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    runs = runs_of(sorted);
  }
  std::vector<std::string> texts;
  for (const auto& [count, layers] : runs) {
    texts.push_back(fmt::format("{} x {}", count, layers));
  }
  return fmt::format("{} (heads x layers{})", fmt::join(texts, ", "),
                     many ? ", not in their order" : "");
}

std::string text_of_json(const Json& report) {
  return report.dump(2, ' ', true, Json::error_handler_t::replace);
}

}  // namespace regroup

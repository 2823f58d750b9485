#include "cli/shell/text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/base/printable.h"

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

void name_nonfinite(Json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    value = fmt::format("{}", value.get<double>());
  } else if (value.is_structured()) {
    for (Json& part : value) {
      name_nonfinite(part);
    }
  }
}

// Tells of one byte after the other whether it begins a column: the rest of a code point does not,
// nor do the escape sequences of colours, "\x1b[1m".
class ColumnCounter {
 public:
  bool begins(char byte) {
    const bool within = escape_ || byte == '\x1b';
    escape_ = within && byte != 'm';
    return !within && !continues_utf8(byte);
  }

 private:
  bool escape_ = false;
};

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_letter(char byte) { return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z'; }

// Where to break a line that is wider than `columns`: at its last space within `columns` and after
// the indentation, otherwise at its first space after `columns`. A number and its
// unit stay together. Returns the line's size if it fits or cannot be broken.
std::size_t break_of(std::string_view line, std::size_t columns, std::size_t indent) {
  std::size_t best = line.size(), width = 0;
  ColumnCounter columns_of;
  if (width_of(line) <= columns) {
    return best;
  }
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool before_unit = i > 0 && i + 1 < line.size() && is_digit(line[i - 1]) &&
                             (is_letter(line[i + 1]) || line[i + 1] == '%');
    if (line[i] == ' ' && width > indent && line[i - 1] != ' ' && !before_unit) {
      if (width > columns) {
        return best == line.size() ? i : best;
      }
      best = i;
    }
    width += columns_of.begins(line[i]) ? 1 : 0;
  }
  return best;
}

}  // namespace

std::size_t width_of(std::string_view text) {
  ColumnCounter columns;
  const auto begins = [&](char byte) { return columns.begins(byte); };
  return static_cast<std::size_t>(std::ranges::count_if(text, begins));
}

std::string code_points(std::string_view text, std::size_t count) {
  std::string part;
  std::size_t number = 0;
  ColumnCounter columns;
  for (const char byte : text) {
    number += columns.begins(byte) ? 1 : 0;
    if (number > 0 && number <= count) {
      part += byte;
    }
  }
  return part;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  return joined(split(text, '\n'), "\n", [&](std::string_view whole) {
    std::string line(whole), broken;
    for (std::size_t at; (at = break_of(line, columns, indent)) < line.size();) {
      broken += line.substr(0, at) + "\n";
      const std::size_t next = line.find_first_not_of(' ', at);
      line = std::string(indent, ' ') + (next == line.npos ? "" : line.substr(next));
    }
    return broken + line;
  });
}

std::string text_of_bytes(double bytes) {
  return scaled(bytes, 1024, std::array<std::string_view, 5>{"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string text_of_count(double count) {
  return scaled(count, 1000, std::array<std::string_view, 5>{"", "K", "M", "B", "T"});
}

std::string with_thousands(std::uint64_t number) {
  return fmt::format("{}", fmt::group_digits(number));
}

std::string text_of_perplexity(double loss) {
  constexpr double kGrouped = 999.95, kMost = 1e15;
  const double perplexity = std::exp(loss);
  if (!(perplexity >= kGrouped && perplexity < kMost)) {
    return fmt::format("{:#.4g}", perplexity);
  }
  const double unit = std::pow(10.0, std::floor(std::log10(perplexity)) - 3);
  return with_thousands(
      static_cast<std::uint64_t>(std::llround(perplexity / unit) * std::llround(unit)));
}

std::string text_of_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return seconds < 10   ? fmt::format("{:.1f} s", seconds)
         : whole < 60   ? fmt::format("{} s", whole)
         : whole < 3600 ? fmt::format("{} min {:02} s", whole / 60, whole % 60)
                        : fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string text_of_facts(const Facts& facts, std::size_t indent) {
  std::string text;
  for (const auto& [name, value] : facts) {
    if (!value.empty()) {
      text += fmt::format("{}{:<{}}{}", text.empty() ? "" : "\n", name, indent, value);
    }
  }
  return text;
}

std::string text_of_json(const Json& report) {
  Json finite = report;
  name_nonfinite(finite);
  return finite.dump(2, ' ', true, Json::error_handler_t::replace);
}

}  // namespace regroup

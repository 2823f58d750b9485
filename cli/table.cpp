#include "cli/table.h"

#include <algorithm>
#include <numeric>

namespace regroup {
namespace {

bool begins_code_point(char byte) { return (byte & 0xc0) != 0x80; }

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_code_point));
}

// `count` code points from number `first` on.
std::string code_points(const std::string& text, std::size_t first, std::size_t count) {
  std::string part;
  std::size_t number = 0;
  for (const char byte : text) {
    number += begins_code_point(byte) ? 1 : 0;
    if (number > first && number <= first + count) {
      part += byte;
    }
  }
  return part;
}

// A piece of a name and the dot or hyphen behind it, if any.
struct NamePart {
  std::string text;
  std::string end = {};

  bool is_number() const {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  }
};

std::vector<NamePart> parts_of(const std::string& name) {
  std::vector<NamePart> parts(1);
  for (const char byte : name) {
    if (byte == '.' || byte == '-') {
      parts.back().end = byte;
      parts.emplace_back();
    } else {
      parts.back().text += byte;
    }
  }
  return parts;
}

std::string cut(const std::string& text, std::size_t width) {
  return width_of(text) <= width ? text : code_points(text, 0, width - 1) + "~";
}

// The longest parts give way, but no numbers: those of layers and shards stay.
// "transf~.h.0.self_a~.query_~.weight", "mod~-00001-of-00003.safet~".
std::string shortened(const std::string& text, std::size_t width) {
  constexpr std::size_t kLeastPart = 3;
  const std::vector<NamePart> parts = parts_of(text);
  std::vector<std::size_t> spare;  // what each part can give
  for (const NamePart& part : parts) {
    const std::size_t length = width_of(part.text);
    spare.push_back(part.is_number() || length < kLeastPart ? 0 : length - kLeastPart);
  }
  for (std::size_t total = width_of(text); total > width; --total) {
    const auto longest = std::max_element(spare.begin(), spare.end());
    if (*longest == 0) {
      break;
    }
    --*longest;
  }
  std::string result;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool whole = parts[i].is_number() || width_of(parts[i].text) < kLeastPart;
    result += (whole ? parts[i].text : cut(parts[i].text, spare[i] + kLeastPart)) + parts[i].end;
  }
  return cut(result, width);
}

constexpr std::size_t kGap = 2;
constexpr std::size_t kLeastWidth = 12;  // of a column that is made narrower

}  // namespace

void Table::add_column(std::string heading, Align align) {
  columns_.push_back({std::move(heading), align});
}

void Table::add_row(std::vector<std::string> cells, Tint tint) {
  rows_.push_back({std::move(cells), tint});
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].heading);
    for (const Row& row : rows_) {
      width = std::max(width, width_of(row.cells[c]));
    }
    widths.push_back(width);
  }
  return widths;
}

std::string Table::line(const std::vector<std::string>& cells,
                        const std::vector<std::size_t>& widths) const {
  std::string line;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::string cell = shortened(cells[c], widths[c]);
    const std::string space(widths[c] - width_of(cell), ' ');
    line += c == 0 ? "" : std::string(kGap, ' ');
    line += columns_[c].align == Align::kLeft ? cell + space : space + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string Table::text(const std::vector<std::size_t>& widths,
                        const std::function<std::string(Tint, const std::string&)>& show) const {
  std::vector<std::string> headings, rules;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    headings.push_back(columns_[c].heading);
    rules.emplace_back(widths[c], '-');
  }
  std::string text =
      show(Tint::kHeading, line(headings, widths)) + "\n" + show(Tint::kNone, line(rules, widths));
  for (const Row& row : rows_) {
    text += "\n" + show(row.tint, line(row.cells, widths));
  }
  return text;
}

// The widest left-aligned column gives way, then the next.
void Table::fit(std::vector<std::size_t>& widths, std::size_t available) const {
  const auto total = [&] {
    return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
  };
  while (total() > available) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::size_t least = std::max(kLeastWidth, width_of(columns_[c].heading));
      if (columns_[c].align == Align::kLeft && widths[c] > least &&
          (widest == nullptr || widths[c] > *widest)) {
        widest = &widths[c];
      }
    }
    if (widest == nullptr) {
      return;  // the terminal wraps what cannot be helped
    }
    --*widest;
  }
}

std::string Table::text() const {
  return text(widths(), [](Tint, const std::string& line) { return line; });
}

std::string Table::text(const Console& console) const {
  std::vector<std::size_t> fitted = widths();
  if (const auto columns = console.result_columns()) {
    fit(fitted, static_cast<std::size_t>(std::max(*columns, 20)));
  }
  return text(fitted,
              [&](Tint tint, const std::string& line) { return console.tinted(tint, line); });
}

}  // namespace regroup

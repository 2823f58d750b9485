#include "cli/shell/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cli/shell/text.h"

namespace regroup {
namespace {

// A part of a name and the dot or hyphen that follows it, if any.
struct NamePart {
  std::string text;
  std::string end = {};

  bool is_number() const {  // or several, as "0,6"
    return !text.empty() && text.find_first_not_of("0123456789,") == std::string::npos;
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
  return width_of(text) <= width ? text : code_points(text, width - 1) + "~";
}

// Shortens the longest parts first, as far as they can still be read. Numbers (of layers and
// shards) stay whole: "transf~.h.0.self_a~.query_~.weight", "model-00001-of-00003.safet~".
std::string shortened(const std::string& text, std::size_t width) {
  constexpr std::size_t kLeastPart = 6;
  const std::vector<NamePart> parts = parts_of(text);
  std::vector<std::size_t> spare;  // code points that each part can lose
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
  return result;
}

// A cell in lines of at most `width`, broken after a dot or the like: shortened to one line if that
// is enough, else whole.
std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  if (std::string line = shortened(text, width); width_of(line) <= width) {
    return {line};
  }
  std::vector<std::string> lines;
  std::string rest = text;
  while (width_of(rest) > width) {
    const std::string head = code_points(rest, width);
    const std::size_t end = head.find_last_of(".,/- ");
    const std::size_t size = end == head.npos || end < head.size() / 2 ? head.size() : end + 1;
    lines.push_back(rest.substr(0, size));
    rest.erase(0, size);
  }
  lines.push_back(rest);
  return lines;
}

constexpr std::size_t kGap = 2;
constexpr std::size_t kLeastWidth = 12;  // columns are not made narrower than this

}  // namespace

void Table::add(const std::vector<std::string>& headings, Align align) {
  for (const std::string& heading : headings) {
    columns_.push_back({heading, align});
  }
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
                        const std::vector<std::size_t>& widths,
                        const std::vector<std::size_t>& band) const {
  std::vector<std::vector<std::string>> parts;  // of each cell
  std::size_t most = 1;
  for (const std::size_t c : band) {
    parts.push_back(lines_of(cells[c], widths[c]));
    most = std::max(most, parts.back().size());
  }
  std::string text;
  for (std::size_t i = 0; i < most; ++i) {
    std::string line;
    for (std::size_t b = 0; b < band.size(); ++b) {
      const std::string shown = i < parts[b].size() ? parts[b][i] : "";
      const std::string space(widths[band[b]] - width_of(shown), ' ');
      line += b == 0 ? "" : std::string(kGap, ' ');
      line += columns_[band[b]].align == Align::kLeft ? shown + space : space + shown;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += (i == 0 ? "" : "\n") + line;
  }
  return text;
}

// Narrows the widest left-aligned column again and again until the row fits.
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
      return;
    }
    --*widest;
  }
}

// Splits the columns into bands that fit side by side. Each band begins with the key columns.
std::vector<std::vector<std::size_t>> Table::bands(const std::vector<std::size_t>& widths,
                                                   std::size_t available) const {
  std::vector<std::size_t> keys;
  std::size_t key_width = 0;
  for (std::size_t c = 0; c < std::min(keys_, columns_.size()); ++c) {
    keys.push_back(c);
    key_width += widths[c] + (c == 0 ? 0 : kGap);
  }
  std::vector<std::vector<std::size_t>> bands{keys};
  std::size_t width = key_width;
  for (std::size_t c = keys.size(); c < columns_.size(); ++c) {
    const bool first = bands.back().size() == keys.size();
    if (!first && width + kGap + widths[c] > available) {
      bands.push_back(keys);
      width = key_width;
    }
    bands.back().push_back(c);
    width += kGap + widths[c];
  }
  return bands;
}

std::string Table::text(std::size_t available, const Console* console) const {
  const auto tinted = [&](Tint tint, const std::string& line) {
    return console == nullptr ? line : console->tinted(tint, line);
  };
  std::vector<std::size_t> fitted = widths();
  fit(fitted, available);
  std::vector<std::string> headings, rules;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    headings.push_back(columns_[c].heading);
    rules.emplace_back(fitted[c], '-');
  }
  std::string text;
  for (const auto& band : bands(fitted, available)) {
    text += text.empty() ? "" : "\n\n";
    text += tinted(Tint::kHeading, line(headings, fitted, band)) + "\n" + line(rules, fitted, band);
    for (const Row& row : rows_) {
      text += "\n" + tinted(row.tint, line(row.cells, fitted, band));
    }
  }
  return text;
}

std::string Table::text(const Console& console) const {
  return text(console.result_columns(), &console);
}

}  // namespace regroup

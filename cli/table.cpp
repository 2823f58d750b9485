#include "cli/table.h"

#include <algorithm>

namespace regroup {
namespace {

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

}  // namespace

void Table::add_column(std::string heading, Align align) {
  columns_.push_back({std::move(heading), align});
}

void Table::add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].heading);
    for (const auto& row : rows_) {
      width = std::max(width, width_of(row[c]));
    }
    widths.push_back(width);
  }
  std::string text;
  const auto put = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cell_of(c);
      const std::string space(widths[c] - width_of(cell), ' ');
      line += c == 0 ? "" : "  ";
      line += columns_[c].align == Align::kLeft ? cell + space : space + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += text.empty() ? line : "\n" + line;
  };
  put([&](std::size_t c) { return columns_[c].heading; });
  put([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows_) {
    put([&](std::size_t c) { return row[c]; });
  }
  return text;
}

}  // namespace regroup

// Aligned columns: text to the left, numbers to the right.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cli/terminal/console.h"

namespace regroup {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align;
  };
  struct Row {
    std::vector<std::string> cells;
    Tint tint;
  };

  /// How many columns there is room for, and what becomes of cells that are too long: all are cut
  /// short ("model.lay~.0.self_a~.weight"), or none, and names stand on lines of their own.
  struct Room {
    std::size_t columns;
    bool cut_names;
  };

  /// The first `keys` columns say what a row is about.
  explicit Table(std::size_t keys = 1) : keys_(keys) {}

  void add_column(std::string heading, Align align);
  /// As many cells as there are columns.
  void add_row(std::vector<std::string> cells, Tint tint = Tint::kNone);

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<Row>& rows() const { return rows_; }

  /// Headings, a rule, rows; two spaces between columns, no newline at the end. Widths count code
  /// points, so that names in any script line up. Where rows would be too wide, columns of names
  /// become narrower; where that is not enough, the table is put as several below each other, each
  /// with the keys and some of the other columns.
  std::string text(const Room& room) const;

  /// The same in the room that results have; rows have their tints. Names are cut on terminals
  /// alone.
  std::string text(const Console& console) const;

 private:
  using Show = std::function<std::string(Tint, const std::string&)>;

  std::vector<std::size_t> widths() const;
  void fit(std::vector<std::size_t>& widths, const Room& room) const;
  std::vector<std::vector<std::size_t>> bands(const std::vector<std::size_t>& widths,
                                              std::size_t available) const;
  std::string cell(std::size_t column, const std::string& text, std::size_t width) const;
  std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                   const std::vector<std::size_t>& band, bool cut_names) const;
  std::string text(const Room& room, const Show& show) const;

  std::size_t keys_;
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace regroup

// Aligned columns: text to the left, numbers to the right.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/console.h"

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

  void add_column(std::string heading, Align align);
  /// As many cells as there are columns.
  void add_row(std::vector<std::string> cells, Tint tint = Tint::kNone);

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<Row>& rows() const { return rows_; }

  /// Headings, a rule, rows; two spaces between columns, no newline at the end. Widths count code
  /// points, so that names in any script line up.
  std::string text() const;

  /// The same as the terminal can show it: where rows would be too wide for it, long cells of
  /// left-aligned columns are cut short ("model.lay~.0.self_a~.weight"); rows have their tints.
  std::string text(const Console& console) const;

 private:
  std::vector<std::size_t> widths() const;
  void fit(std::vector<std::size_t>& widths, std::size_t available) const;
  std::string line(const std::vector<std::string>& cells,
                   const std::vector<std::size_t>& widths) const;
  std::string text(const std::vector<std::size_t>& widths,
                   const std::function<std::string(Tint, const std::string&)>& show) const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace regroup

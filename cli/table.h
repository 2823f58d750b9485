// Aligned columns: text to the left, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace regroup {

class Table {
 public:
  enum class Align { kLeft, kRight };

  void add_column(std::string heading, Align align);
  /// As many cells as there are columns.
  void add_row(std::vector<std::string> cells);

  /// Headings, a rule, rows; two spaces between columns, no newline at the end. Widths count code
  /// points, so that names in any script line up.
  std::string text() const;

 private:
  struct Column {
    std::string heading;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace regroup

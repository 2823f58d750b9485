// Tables with aligned columns: text is left-aligned, numbers are right-aligned.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/shell/console.h"

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

  /// The first `keys` columns identify a row.
  explicit Table(std::size_t keys = 1) : keys_(keys) {}

  /// Adds columns of text, or of numbers.
  void add_texts(const std::vector<std::string>& headings) { add(headings, Align::kLeft); }
  void add_numbers(const std::vector<std::string>& headings) { add(headings, Align::kRight); }
  /// `cells` has one entry per column.
  void add_row(std::vector<std::string> cells, Tint tint = Tint::kNone);

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<Row>& rows() const { return rows_; }

  /// Headings, a rule and the rows; two spaces between columns, no newline at the end. Widths count
  /// code points, so that non-ASCII names are aligned. If rows are too wide, columns of names
  /// become narrower ("model.layers.0.self_a~.weight"), and their cells may take several lines. If
  /// that is not enough, the table is split into several below each other, each with the key
  /// columns and some of the others. Rows get the colours of `console`, if one is given.
  std::string text(std::size_t available, const Console* console = nullptr) const;

  /// The same for stdout. In a pipe or a file, each row is one line, which grep finds whole.
  std::string text(const Console& console) const;

 private:
  void add(const std::vector<std::string>& headings, Align align);
  std::vector<std::size_t> widths() const;
  void fit(std::vector<std::size_t>& widths, std::size_t available) const;
  std::vector<std::vector<std::size_t>> bands(const std::vector<std::size_t>& widths,
                                              std::size_t available) const;
  std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                   const std::vector<std::size_t>& band) const;

  std::size_t keys_;
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace regroup

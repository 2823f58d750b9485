// A page: its markup, its style, its parts, and the file that it is written to.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/report/chart.h"
#include "cli/shell/console.h"
#include "cli/shell/table.h"
#include "cli/shell/text.h"

namespace regroup {

/// `text` for use between tags and in quoted attributes of HTML and SVG, so that names in a
/// checkpoint inject no markup: applies printable() and replaces & < > " ' by entities.
std::string escaped(std::string_view text);

/// What a page about this file or directory is headed by: its name without the folders it is in.
std::string title_of(const std::filesystem::path& path);

/// A report as one self-contained HTML page without scripts, for light and dark schemes and print.
class Page {
 public:
  /// `title` is the subject of the page, `subtitle` the kind of report.
  Page(std::string title, std::string subtitle)
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  /// Begins a section; later calls add to it. `id` must be unique in the page.
  void begin_section(const std::string& id, const std::string& heading);

  void add_facts(const Facts& facts);  ///< skips facts with an empty value
  void add_paragraph(const std::string& text);
  void add_verdict(bool good, const std::string& text);  ///< coloured, with a check mark or a cross
  void add_warnings(const std::vector<std::string>& warnings);
  /// If `fold`, a table of more than 12 rows is collapsed.
  void add_table(const Table& table, const std::string& caption, bool fold = false);
  void add_command(const std::string& command);
  /// Adds charts side by side if there is room, each with its numbers as a collapsed table.
  void add_charts(const std::vector<Chart>& charts);

  /// The complete document.
  std::string text() const;

 private:
  struct Section {
    std::string id, heading, body;
  };
  std::string& body() { return sections_.back().body; }
  std::string contents() const;

  std::string title_, subtitle_;
  std::vector<Section> sections_;
};

/// Writes an HTML page or an SVG file to `path` and prints a note. Replaces an existing file of
/// that kind atomically. Throws kUsage if `path` is anything else, kEnvironment if it cannot be
/// written.
void write_page(const std::filesystem::path& path, std::string_view text, const Console& console);

/// Throws kUsage as write_page() does, unless the path is empty. For use before long work.
void check_page_path(const std::filesystem::path& path);

}  // namespace regroup

// A report as one HTML page that needs nothing else: no script, no request, light, dark and print.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/page/chart.h"
#include "cli/page/heat_map.h"
#include "cli/terminal/table.h"

namespace regroup {

/// Names and values, both plain text.
using Facts = std::vector<std::pair<std::string, std::string>>;

class Page {
 public:
  /// `title` is what the page is about, `subtitle` what kind of report it is.
  Page(std::string title, std::string subtitle)
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  /// Begins a section; what follows stands in it. `id` is its own in the page.
  void begin_section(const std::string& id, const std::string& heading);

  void add_facts(const Facts& facts);  ///< those with an empty value are left out
  void add_paragraph(const std::string& text);
  void add_verdict(bool good, const std::string& text);  ///< in a colour, and with a sign beside it
  void add_warnings(const std::vector<std::string>& warnings);
  /// One of many rows is folded up where `fold` is set.
  void add_table(const Table& table, const std::string& caption, bool fold = false);
  void add_command(const std::string& command);
  /// Side by side where there is room, each with its numbers as a table to unfold.
  void add_charts(const std::vector<Chart>& charts);
  void add_heat_maps(const std::vector<HeatMap>& maps);

  /// The whole document.
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

}  // namespace regroup

#include "cli/page/page.h"

#include <cmath>
#include <map>

#include <fmt/format.h>

#include "cli/page/markup.h"
#include "cli/page/page_style.h"
#include "formats/version.h"

namespace regroup {
namespace {

// A table that scrolls within the page if the window is too narrow, also by keyboard.
std::string scrolling_table(const Table& table, const std::string& caption) {
  std::string html = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\">\n"
      "<table aria-label=\"{0}\">\n<thead><tr>",
      escaped(caption));
  const auto& columns = table.columns();
  constexpr std::size_t kLong = 24;  // bytes; longer cells may wrap in a narrow window
  const auto kind = [&](std::size_t column, const std::string& cell) {
    return columns[column].align == Table::Align::kRight ? " class=\"number\""
           : cell.size() > kLong                         ? " class=\"long\""
                                                         : "";
  };
  for (std::size_t c = 0; c < columns.size(); ++c) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>", kind(c, ""), escaped(columns[c].heading));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const Table::Row& row : table.rows()) {
    html += "<tr>";
    for (std::size_t c = 0; c < columns.size(); ++c) {
      html += fmt::format("<td{}>{}</td>", kind(c, row.cells[c]), escaped(row.cells[c]));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// A row for each x, a column for each series.
Table numbers_of(const Chart& chart) {
  Table table;
  table.add_column(chart.x.title, Table::Align::kRight);
  std::map<double, std::vector<std::string>> rows;
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    table.add_column(chart.series[s].name, Table::Align::kRight);
    for (const ChartPoint& point : chart.series[s].points) {
      auto& row = rows[point.x];
      row.resize(chart.series.size(), "-");
      row[s] = text_of(chart.y, point.y);
    }
  }
  for (const auto& [x, cells] : rows) {
    std::vector<std::string> row{text_of(chart.x, x)};
    row.insert(row.end(), cells.begin(), cells.end());
    table.add_row(std::move(row));
  }
  return table;
}

std::string figure_of(const Chart& chart) {
  return fmt::format(
      "<figure><figcaption><h3>{}</h3><p>{}</p></figcaption>\n{}<details><summary>Numbers</"
      "summary>\n{}"
      "</details></figure>\n",
      escaped(chart.title), escaped(chart.description), svg_of(chart),
      scrolling_table(numbers_of(chart), chart.title));
}

}  // namespace

void Page::begin_section(const std::string& id, const std::string& heading) {
  sections_.push_back({id, heading, ""});
}

void Page::add_facts(const Facts& facts) {
  body() += "<dl>\n";
  for (const auto& [name, value] : facts) {
    if (!value.empty()) {
      body() += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), escaped(value));
    }
  }
  body() += "</dl>\n";
}

void Page::add_paragraph(const std::string& text) {
  body() += fmt::format("<p>{}</p>\n", escaped(text));
}

void Page::add_verdict(bool good, const std::string& text) {
  body() += fmt::format("<p class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {}</p>\n",
                        good ? "good" : "bad", good ? "\u2713" : "\u2717", escaped(text));
}

void Page::add_warnings(const std::vector<std::string>& warnings) {
  if (warnings.empty()) {
    return;
  }
  body() += "<ul class=\"warnings\">\n";
  for (const std::string& warning : warnings) {
    body() += fmt::format("<li><strong>Warning:</strong> {}</li>\n", escaped(warning));
  }
  body() += "</ul>\n";
}

void Page::add_table(const Table& table, const std::string& caption, bool fold) {
  constexpr std::size_t kManyRows = 12;
  const std::string html = scrolling_table(table, caption);
  if (fold && table.rows().size() > kManyRows) {
    body() += fmt::format("<details><summary>{} ({})</summary>\n{}</details>\n", escaped(caption),
                          table.rows().size(), html);
  } else {
    body() += fmt::format("<h3>{}</h3>\n{}", escaped(caption), html);
  }
}

void Page::add_command(const std::string& command) {
  body() += fmt::format("<pre tabindex=\"0\"><code>{}</code></pre>\n", escaped(command));
}

void Page::add_charts(const std::vector<Chart>& charts) {
  body() += "<div class=\"figures\">\n";
  for (const Chart& chart : charts) {
    body() += figure_of(chart);
  }
  body() += "</div>\n";
}

// Links to the sections, if there are at least three.
std::string Page::contents() const {
  if (sections_.size() < 3) {
    return "";
  }
  std::string html = "<nav aria-label=\"Contents\"><ul>\n";
  for (const Section& section : sections_) {
    html += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", section.id, escaped(section.heading));
  }
  return html + "</ul></nav>\n";
}

std::string Page::text() const {
  // The policy allows only the page's own styles, in case markup is injected nevertheless.
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" "
      "content=\"regroup {}\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{} - "
      "{}</title>\n<style>{}{}</style>\n</head>\n<body>\n"
      "<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
      "<header><p>{}</p><h1>{}</h1></header>\n{}<main id=\"main\">\n",
      kVersion, escaped(title_), escaped(subtitle_), page_style(), chart_style(),
      escaped(subtitle_), escaped(title_), contents());
  for (const Section& section : sections_) {
    html += fmt::format(
        "<section id=\"{}\" aria-labelledby=\"{}-heading\">\n<h2 id=\"{}-heading\">{}</h2>\n{}"
        "</section>\n",
        section.id, section.id, section.id, escaped(section.heading), section.body);
  }
  return html +
         fmt::format("</main>\n<footer><p>Made by regroup {}.</p></footer>\n</body>\n</html>\n",
                     kVersion);
}

}  // namespace regroup

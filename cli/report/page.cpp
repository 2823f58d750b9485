#include "cli/report/page.h"

#include <map>
#include <unistd.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/version.h"

namespace regroup {
namespace {

// CSS for narrow and wide screens, light and dark schemes and print. Charts have their own.
constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ground:#fff;--card:#f6f8fa;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--link:#0068a8;
--edge:#0003;--warn:#8a4b00;--warn-ground:#fff4e0;--good:#00694e;--bad:#a3261d}
@media screen and (prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1c2024;--ink:#e6e9ec;--soft:#a3abb3;
--rule:#343a40;--edge:#fff5;--link:#7cc0f2;--warn:#ffc069;--warn-ground:#33270f;--good:#4fd0a8;--bad:#ff9189}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1.2rem 1rem 3rem;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header p{margin:0;color:var(--soft)}h1{margin:.1rem 0 1rem;font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}
h2{margin:2.4rem 0 .8rem;font-size:1.2rem;border-bottom:1px solid var(--rule);padding-bottom:.3rem}
h3{margin:0;font-size:1rem}p{max-width:45rem}a{color:var(--link)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--ground);padding:.3rem .6rem}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none;margin:0;padding:0}
nav a{display:inline-block;padding:.3rem 0}
dl{margin:0 0 1.2rem}dl div{display:grid;grid-template-columns:9rem 1fr;gap:0 1rem;padding:.35rem 0;border-bottom:1px solid var(--rule)}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.warnings{list-style:none;padding:0;margin:0 0 1rem}
.warnings li{background:var(--warn-ground);color:var(--ink);border-left:4px solid var(--warn);padding:.5rem .8rem;
margin:0 0 .4rem;overflow-wrap:anywhere}.warnings strong{color:var(--warn)}
.verdict{background:var(--card);border-left:4px solid;padding:.5rem .8rem;margin:0 0 1rem;overflow-wrap:anywhere}
.verdict span{font-weight:700;margin-right:.3rem}.verdict.good{border-color:var(--good)}.verdict.good span{color:var(--good)}
.verdict.bad{border-color:var(--bad)}.verdict.bad span{color:var(--bad)}
pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:.7rem .9rem;overflow-x:auto;font-size:.875rem}
.scroll{overflow-x:auto;margin:0 0 1.2rem;background:linear-gradient(90deg,var(--ground) 30%,transparent) local,
linear-gradient(270deg,var(--ground) 30%,transparent) 100% 0 local,linear-gradient(90deg,var(--edge),transparent) scroll,
linear-gradient(270deg,var(--edge),transparent) 100% 0 scroll;background-repeat:no-repeat;
background-size:2.5rem 100%,2.5rem 100%,.8rem 100%,.8rem 100%}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
section>h3{margin:1.6rem 0 .4rem}
th,td{padding:.25rem .9rem .25rem 0;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap}
th{font-weight:600;vertical-align:bottom}td{vertical-align:top}.number{text-align:right}.long{white-space:normal;overflow-wrap:anywhere;min-width:12rem}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1rem;margin:0 0 1.2rem}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.8rem}
figcaption p{margin:.1rem 0 .6rem;color:var(--soft);font-size:.875rem;line-height:1.4}
figure .chart{--ground:var(--card);display:block;width:100%;height:auto}
summary{color:var(--link);cursor:pointer;font-size:.875rem;padding:.3rem 0;width:fit-content}
figure .scroll{max-height:20rem;overflow:auto;margin:0}
footer{margin-top:3rem;color:var(--soft);font-size:.875rem}
figure .scroll{--ground:var(--card)}
@media (max-width:34rem){dl div{grid-template-columns:1fr}h1{font-size:1.35rem}figure{padding:.8rem .5rem}
th,td{white-space:normal;padding-right:.35rem}td.number:not(.long){white-space:nowrap}.long{min-width:6.5rem}
table{font-size:.75rem}}
@media print{body{max-width:none;padding:0;font-size:10pt}nav,.skip,figure details{display:none}h2{break-after:avoid}
figure,dl div,tr{break-inside:avoid}.figures{grid-template-columns:1fr 1fr}.scroll{overflow:visible}
table{font-size:7.5pt}th,td{white-space:normal;overflow-wrap:anywhere;padding-right:.5rem}thead{display:table-header-group}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

// A table that scrolls within the page if the window is too narrow, also by keyboard.
std::string scrolling_table(const Table& table, const std::string& caption) {
  std::string html = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\">\n"
      "<table aria-label=\"{0}\">\n<thead><tr>",
      escaped(caption));
  const auto& columns = table.columns();
  constexpr std::size_t kLong = 24;  // bytes; longer cells may wrap in a narrow window
  const auto kind = [&](std::size_t column, const std::string& cell) {
    const bool is_long = cell.size() > kLong;
    return columns[column].align == Table::Align::kRight
               ? (is_long ? " class=\"number long\"" : " class=\"number\"")
           : is_long ? " class=\"long\""
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
  table.add_numbers({chart.x.title});
  std::map<double, std::vector<std::string>> rows;
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    table.add_numbers({chart.series[s].name});
    for (const ChartPoint& point : chart.series[s].points) {
      auto& row = rows[point.x];
      row.resize(chart.series.size(), "-");
      row[s] = text_of(chart.y, point.y);
    }
  }
  for (const auto& [x, cells] : rows) {
    std::vector<std::string> row{text_of(chart.x, x)};
    append(row, cells);
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

namespace fs = std::filesystem;

// The policy allows only the page's own styles, in case markup is injected nevertheless.
constexpr std::string_view kPageBegin =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'; img-src data:\">\n";

// A kind of report file, which is recognised by its first bytes. Others' files begin otherwise.
struct Kind {
  std::string_view option, name, first;
};
constexpr Kind kPage{"--html", "a page that regroup made", kPageBegin};
constexpr Kind kDrawing{"--output", "a drawing that regroup made",
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" "};

bool is(const Kind& kind, const fs::path& path) {
  std::string first(kind.first.size(), '\0');
  const File file = File::open(path);
  if (file.size() < first.size()) {
    return false;
  }
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  return first == kind.first;
}

void check_path(const Kind& kind, const fs::path& path) {
  std::error_code fault;
  const fs::path folder = existing_folder_above(path);
  if (!fs::is_directory(folder, fault)) {
    throw_usage("{}: {}: is not a folder", kind.option, printable_path(folder));
  }
  if (path_exists(path) && !(fs::is_regular_file(path, fault) && is(kind, path))) {
    throw_usage("{}: {}: exists and is not {}", kind.option, printable_path(path), kind.name);
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char byte : printable(text, 0)) {
    switch (byte) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += byte;
    }
  }
  return safe;
}

std::string title_of(const fs::path& path) {
  const std::string hub_name = hub_name_of(path);  // of a snapshot, whose folder is a checksum
  const auto normal = (hub_name.empty() ? path : fs::path(hub_name)).lexically_normal();
  const fs::path name = normal.has_filename() ? normal.filename() : normal.parent_path().filename();
  return name.empty() || name == "." || name == ".." ? path.string() : name.string();
}

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
  std::string html = std::string(kPageBegin);
  html += fmt::format(
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" "
      "content=\"regroup {}\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{} - "
      "{}</title>\n<style>{}{}</style>\n</head>\n<body>\n"
      "<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
      "<header><p>{}</p><h1>{}</h1></header>\n{}<main id=\"main\">\n",
      kVersion, escaped(title_), escaped(subtitle_), kStyle, chart_style(), escaped(subtitle_),
      escaped(title_), contents());
  for (const Section& section : sections_) {
    html += fmt::format(
        "<section id=\"{0}\" aria-labelledby=\"{0}-heading\">\n<h2 id=\"{0}-heading\">{1}</h2>\n{2}"
        "</section>\n",
        section.id, escaped(section.heading), section.body);
  }
  return html +
         fmt::format("</main>\n<footer><p>Made by regroup {}.</p></footer>\n</body>\n</html>\n",
                     kVersion);
}

void check_page_path(const fs::path& path) {
  if (!path.empty()) {
    check_path(kPage, path);
  }
}

void write_page(const fs::path& path, std::string_view text, const Console& console) {
  check_path(text.starts_with(kDrawing.first) ? kDrawing : kPage, path);
  fs::path partial = path;
  partial += fmt::format(".{}.partial", ::getpid());
  std::error_code fault, ignored;
  try {
    fs::create_directories(path.parent_path(), ignored);  // write_text says what is wrong
    write_text(partial, text);
    fs::rename(partial, path, fault);
    if (fault) {
      throw_environment("{}: cannot write: {}", printable_path(path), fault.message());
    }
  } catch (...) {
    fs::remove(partial, ignored);
    throw;
  }
  console.note(fmt::format("wrote {}", printable_path(path)));
}

}  // namespace regroup

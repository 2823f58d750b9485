#include "cli/report/report_file.h"

#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A kind of report file, which is recognised by its first bytes.
struct Kind {
  std::string_view option, name, first;
};
constexpr Kind kPage{"--html", "an HTML page", "<!doctype html>"};
constexpr Kind kDrawing{"--output", "an SVG file", "<svg "};

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
  if (path_exists(path) && !(fs::is_regular_file(path, fault) && is(kind, path))) {
    throw_usage("{}: {}: exists and is not {}", kind.option, printable(path.string(), 0),
                kind.name);
  }
}

void write(const Kind& kind, const fs::path& path, std::string_view text, const Console& console) {
  check_path(kind, path);
  fs::path partial = path;
  partial += fmt::format(".{}.partial", ::getpid());
  try {
    write_text(partial, text);
    fs::rename(partial, path);
  } catch (const fs::filesystem_error& fault) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw_environment("{}: cannot write: {}", printable(path.string(), 0), fault.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw;
  }
  console.note(fmt::format("wrote {}", printable(path.string(), 0)));
}

}  // namespace

void check_page_path(const fs::path& path) { check_path(kPage, path); }

void write_page(const fs::path& path, std::string_view page, const Console& console) {
  write(kPage, path, page, console);
}

void write_drawing(const fs::path& path, std::string_view drawing, const Console& console) {
  write(kDrawing, path, drawing, console);
}

}  // namespace regroup

#include "cli/report_file.h"

#include <array>
#include <unistd.h>

#include <fmt/format.h>

#include "formats/error.h"
#include "formats/file.h"
#include "formats/printable.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFirst = "<!doctype html>";

bool is_page(const fs::path& path) {
  std::array<char, kFirst.size()> first{};
  const File file = File::open(path);
  if (file.size() < first.size()) {
    return false;
  }
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  return std::string_view(first.data(), first.size()) == kFirst;
}

}  // namespace

void check_page_path(const fs::path& path) {
  std::error_code fault;
  if (path_exists(path) && !(fs::is_regular_file(path, fault) && is_page(path))) {
    throw_usage("--html: {}: exists and is no HTML page", printable(path.string(), 0));
  }
}

void write_page(const fs::path& path, std::string_view page, const Console& console) {
  check_page_path(path);
  fs::path partial = path;
  partial += fmt::format(".{}.partial", ::getpid());
  try {
    write_text(partial, page);
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

}  // namespace regroup

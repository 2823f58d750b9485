#include "uptrain/metrics.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "formats/error.h"
#include "formats/printable.h"

namespace regroup {
namespace {

// Bytes of the leading lines that are whole and belong to steps up to `last_step`.
std::uintmax_t bytes_to_keep(const std::filesystem::path& path, std::int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t kept = 0;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // eof: no newline closed the line
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool whole = parsed.is_object() && parsed.contains("step") && parsed["step"].is_number();
    if (!whole || parsed["step"].get<std::int64_t>() > last_step) {
      break;
    }
    kept += line.size() + 1;
  }
  return kept;
}

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view action) {
  throw_environment("{}: cannot {}: {}", printable(path.string(), 0), action, std::strerror(errno));
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t last_step) : path_(path) {
  if (std::filesystem::exists(path)) {
    std::error_code fault;
    std::filesystem::resize_file(path, bytes_to_keep(path, last_step), fault);
    if (fault) {
      throw_environment("{}: cannot truncate: {}", printable(path.string(), 0), fault.message());
    }
  }
  file_.reset(std::fopen(path.c_str(), "ae"));
  if (!file_) {
    fail(path_, "open");
  }
}

void MetricsLog::append(const Json& line) {
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    fail(path_, "write");
  }
}

}  // namespace regroup

#include "uptrain/trainer/metrics.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace regroup {
namespace {

// Whether this is a complete line of a step up to `last_step`.
bool is_kept(std::string_view line, std::int64_t last_step) {
  const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() && parsed.contains("step") && parsed["step"].is_number_integer() &&
         parsed["step"].get<std::int64_t>() <= last_step;
}

// The number of bytes of the leading lines that are kept.
std::uint64_t bytes_to_keep(const File& file, std::int64_t last_step) {
  constexpr std::uint64_t kPart = 1U << 20;  // longer than any line
  std::uint64_t kept = 0;
  while (true) {
    std::string part(std::min(kPart, file.size() - kept), '\0');
    file.read_at(kept, std::as_writable_bytes(std::span(part)));
    std::size_t begin = 0;
    for (std::size_t end = part.find('\n'); end != std::string::npos;
         end = part.find('\n', begin)) {
      if (!is_kept(std::string_view(part).substr(begin, end - begin), last_step)) {
        return kept + begin;
      }
      begin = end + 1;
    }
    if (begin == 0) {
      return kept;
    }
    kept += begin;
  }
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t last_step)
    : file_(File::open_or_create(path)), end_(bytes_to_keep(file_, last_step)) {
  file_.truncate(end_);
}

void MetricsLog::append(const Json& line) {
  const std::string text = line.dump() + "\n";
  file_.write_at(end_, std::as_bytes(std::span(text)));
  end_ += text.size();
}

}  // namespace regroup

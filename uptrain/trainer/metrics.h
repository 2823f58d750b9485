// The metrics of a run: one JSON object per line, appended during the run.
#pragma once

#include <cstdint>
#include <filesystem>

#include "formats/base/file.h"
#include "formats/json/json.h"

namespace regroup {

/// An append-only file of JSON lines, each with its "step".
class MetricsLog {
 public:
  /// Opens or creates `path` and truncates it after `last_step`: lines of later steps, which a
  /// resumed run will write again, and an incomplete line. Throws kBadInput if it is not a regular
  /// file.
  MetricsLog(const std::filesystem::path& path, std::int64_t last_step);

  /// Appends one line; it is in the file when this returns. Throws kEnvironment.
  void append(const Json& line);

 private:
  File file_;
  std::uint64_t end_ = 0;
};

}  // namespace regroup

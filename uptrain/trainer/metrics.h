// The record of a run: one JSON object per line, appended as it happens.
#pragma once

#include <cstdint>
#include <filesystem>

#include "formats/base/file.h"
#include "formats/json/json.h"

namespace regroup {

/// An append-only file of JSON lines, each with its "step".
class MetricsLog {
 public:
  /// Opens `path`, made if it is missing, and cuts off what follows `last_step`: lines of later
  /// steps, which a resumed run will write again, and a line that was not finished. Throws
  /// kBadInput where it is no regular file.
  MetricsLog(const std::filesystem::path& path, std::int64_t last_step);

  /// Appends one line; it is in the file when this returns. Throws kEnvironment.
  void append(const Json& line);

 private:
  File file_;
  std::uint64_t end_ = 0;
};

}  // namespace regroup

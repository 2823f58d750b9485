// The record of a run: one JSON object per line, appended as it happens.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "formats/json.h"

namespace regroup {

/// An append-only file of JSON lines, each with its "step".
class MetricsLog {
 public:
  /// Opens `path`, made if it is missing, and cuts off what follows `last_step`: lines of later
  /// steps, which a resumed run will write again, and a line that was not finished.
  MetricsLog(const std::filesystem::path& path, std::int64_t last_step);

  /// Appends one line; it is in the file when this returns. Throws kEnvironment.
  void append(const Json& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace regroup

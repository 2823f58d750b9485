// Writes a report into a file of its own.
#pragma once

#include <filesystem>
#include <string_view>

#include "cli/terminal/console.h"

namespace regroup {

/// Writes an HTML page to `path` and says so. An older page gives way, and only when the new one is
/// complete; throws kUsage where anything else stands there, kEnvironment where it cannot be
/// written.
void write_page(const std::filesystem::path& path, std::string_view page, const Console& console);

/// The same of a drawing, an SVG file.
void write_drawing(const std::filesystem::path& path, std::string_view drawing,
                   const Console& console);

/// The same check, ahead of long work.
void check_page_path(const std::filesystem::path& path);

}  // namespace regroup

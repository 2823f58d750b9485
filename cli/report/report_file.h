// Writes reports to files.
#pragma once

#include <filesystem>
#include <string_view>

#include "cli/shell/console.h"

namespace regroup {

/// Writes an HTML page to `path` and prints a note. Replaces an existing HTML page atomically.
/// Throws kUsage if `path` is anything else, kEnvironment if it cannot be written.
void write_page(const std::filesystem::path& path, std::string_view page, const Console& console);

/// The same for an SVG file.
void write_drawing(const std::filesystem::path& path, std::string_view drawing,
                   const Console& console);

/// Throws kUsage as write_page() does. For use before long work.
void check_page_path(const std::filesystem::path& path);

}  // namespace regroup

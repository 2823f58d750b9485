// What it means that a path cannot be opened or looked at.
#pragma once

#include <filesystem>

namespace regroup {

/// Throws for a call that failed on `path` with that errno: kBadInput where the path itself is
/// wrong (nothing is there, or something else than a file), kEnvironment for everything else, such
/// as a missing permission or too many open files.
[[noreturn]] void throw_cannot_open(const std::filesystem::path& path, int code);

/// Whether there is a directory or a file under that name. Throws as throw_cannot_open() does where
/// that cannot be found out: a directory that may not be entered is not an absent one.
bool is_directory_there(const std::filesystem::path& path);
bool is_file_there(const std::filesystem::path& path);

}  // namespace regroup

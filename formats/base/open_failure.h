// Errors for paths that cannot be opened or examined.
#pragma once

#include <filesystem>

namespace regroup {

/// Throws the error for a call on `path` that failed with errno `code`: kBadInput if the path is
/// wrong (it does not exist or is not a file), kEnvironment otherwise (for example missing
/// permission or too many open files).
[[noreturn]] void throw_cannot_open(const std::filesystem::path& path, int code);

/// Whether `path` is an existing directory or a regular file, respectively. Throws like
/// throw_cannot_open() if that cannot be determined: a directory that cannot be entered does not
/// count as absent.
bool is_directory_there(const std::filesystem::path& path);
bool is_file_there(const std::filesystem::path& path);

}  // namespace regroup

// Memory of the machine that this process may still take.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace regroup {

/// Bytes in a line of /proc such as "MemAvailable:   12345678 kB"; none where the file or the line
/// is missing.
std::optional<double> bytes_in(const std::filesystem::path& file, std::string_view key);

/// What Linux estimates to be free (MemAvailable), or less where a control group, as containers
/// have, or `ulimit -v` allows less; none where nothing is known.
std::optional<double> free_host_memory();

/// What control groups still allow: `membership` is /proc/self/cgroup, `mount` where their files
/// are. The groups around this process's own count, too. None where none has a limit.
std::optional<double> free_in_control_groups(const std::filesystem::path& membership,
                                             const std::filesystem::path& mount);

}  // namespace regroup

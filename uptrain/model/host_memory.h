// Host memory that is available to this process.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace regroup {

/// Bytes in a line of /proc such as "MemAvailable:   12345678 kB"; none if the file or the line is
/// missing.
std::optional<double> bytes_in(const std::filesystem::path& file, std::string_view key);

/// Linux's estimate of available memory (MemAvailable), or less if a control group (container) or
/// `ulimit -v` allows less; none if unknown.
std::optional<double> free_host_memory();

/// Memory that control groups still allow, including the parents of this process's group.
/// `membership` is /proc/self/cgroup, `mount` the mount point. None if no group has a limit.
std::optional<double> free_in_control_groups(const std::filesystem::path& membership,
                                             const std::filesystem::path& mount);

}  // namespace regroup

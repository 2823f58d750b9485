#include "uptrain/model/host_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <sys/resource.h>

namespace regroup {
namespace {

namespace fs = std::filesystem;

// The names of the same files in the two versions of control groups.
struct GroupFiles {
  const char *limit, *used, *reclaimable;
};
constexpr GroupFiles kFirst{"memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file"};
constexpr GroupFiles kSecond{"memory.max", "memory.current", "inactive_file"};

std::optional<double> least(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// The number in a file that holds one number or the word "max". None for "max".
std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double number = 0.0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The number after the word `key` at the beginning of a line.
std::optional<double> number_after(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    double number = 0.0;
    if (words >> first >> number && first == key) {
      return number;
    }
  }
  return std::nullopt;
}

// Inactive file pages count as free: they are reclaimed before an allocation fails.
std::optional<double> free_in_group(const fs::path& group, const GroupFiles& files) {
  const auto limit = number_in(group / files.limit);
  const auto used = number_in(group / files.used);
  if (!limit || !used) {
    return std::nullopt;
  }
  const double reclaimable = number_after(group / "memory.stat", files.reclaimable).value_or(0.0);
  return std::max(0.0, *limit - std::max(0.0, *used - reclaimable));
}

// The least free memory of a group and of the groups around it, up to `mount`.
std::optional<double> free_up_from(const fs::path& mount, const std::string& group,
                                   const GroupFiles& files) {
  std::optional<double> room;
  fs::path inside = fs::path(group).relative_path();
  while (true) {
    room = least(room, free_in_group(mount / inside, files));
    if (inside.empty()) {
      return room;
    }
    inside = inside.parent_path();
  }
}

std::optional<double> free_under_limit() {
  rlimit limit{};
  const auto used = bytes_in("/proc/self/status", "VmSize:");
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !used) {
    return std::nullopt;
  }
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - *used);
}

}  // namespace

std::optional<double> bytes_in(const fs::path& file, std::string_view key) {
  constexpr double kKibibyte = 1024.0;
  const auto kibibytes = number_after(file, key);
  return kibibytes ? std::optional(*kibibytes * kKibibyte) : std::nullopt;
}

std::optional<double> free_in_control_groups(const fs::path& membership, const fs::path& mount) {
  std::optional<double> room;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "4:memory:/group", "0::/group"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      room = least(room, free_up_from(mount, group, kSecond));
    } else if (controllers.find(",memory,") != std::string::npos) {
      room = least(room, free_up_from(mount / "memory", group, kFirst));
    }
  }
  return room;
}

std::optional<double> free_host_memory() {
  return least(least(bytes_in("/proc/meminfo", "MemAvailable:"),
                     free_in_control_groups("/proc/self/cgroup", "/sys/fs/cgroup")),
               free_under_limit());
}

}  // namespace regroup

// Host memory available to a process.
#include "uptrain/model/device.h"

#include <algorithm>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {

TEST_CASE("free memory is positive, and unknown keys and files have no number", "[uptrain]") {
  const auto free = free_host_memory();
  REQUIRE(free);
  CHECK(*free > 0);
  CHECK(bytes_in("/proc/meminfo", "MemTotal:"));
  CHECK_FALSE(bytes_in("/proc/meminfo", "NoSuchKey:"));
  CHECK_FALSE(bytes_in("/proc/no-such-file", "MemTotal:"));
}

TEST_CASE("a limit of the address space bounds the free memory", "[uptrain]") {
  constexpr double kRoom = 64.0 * 1024 * 1024;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const auto used = bytes_in("/proc/self/status", "VmSize:");
  REQUIRE(used);
  const rlimit less{static_cast<rlim_t>(*used + kRoom), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &less) == 0);
  const auto free = free_host_memory();
  ::setrlimit(RLIMIT_AS, &before);
  REQUIRE(free);
  CHECK(*free <= kRoom);
  CHECK(*free > kRoom / 2);  // reading the files takes some of it
}

TEST_CASE("free memory is at most what the machine has available", "[uptrain]") {
  const auto available = [] { return bytes_in("/proc/meminfo", "MemAvailable:").value(); };
  constexpr double kChange = 1.1;  // other processes free memory meanwhile
  const double before = available();
  const auto free = free_host_memory();
  REQUIRE(free);
  CHECK(*free <= kChange * std::max(before, available()));
}

TEST_CASE("limits of a control group and of its parents apply", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto mount = directory / "cgroup";
  put_file(directory / "second", "0::/outer/inner\n");
  const auto free = [&](const char* membership) {
    return free_in_control_groups(directory / membership, mount);
  };
  CHECK_FALSE(free("second"));
  CHECK_FALSE(free("none"));
  put_file(mount / "outer/inner/memory.max", "max\n");
  put_file(mount / "outer/inner/memory.current", "300\n");
  CHECK_FALSE(free("second"));
  put_file(mount / "outer/memory.max", "1000\n");
  put_file(mount / "outer/memory.current", "700\n");
  CHECK(free("second") == 300.0);
  put_file(mount / "outer/memory.stat", "anon 5\ninactive_file 200\n");
  CHECK(free("second") == 500.0);
  put_file(mount / "outer/inner/memory.max", "200\n");
  CHECK(free("second") == 0.0);

  put_file(directory / "first", "5:cpu,cpuacct:/other\n4:memory:/box\n0::/\n");
  put_file(mount / "memory/box/memory.limit_in_bytes", "900\n");
  put_file(mount / "memory/box/memory.usage_in_bytes", "400\n");
  put_file(mount / "memory/box/memory.stat", "inactive_file 7\ntotal_inactive_file 100\n");
  CHECK(free("first") == 600.0);
  put_file(mount / "memory/memory.limit_in_bytes", "500\n");
  put_file(mount / "memory/memory.usage_in_bytes", "450\n");
  CHECK(free("first") == 50.0);
}

}  // namespace regroup

// Host memory available to a process.
#include "uptrain/model/host_memory.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {

TEST_CASE("free memory is positive and at most the machine's total", "[uptrain]") {
  const auto free = free_host_memory();
  REQUIRE(free);
  CHECK(*free > 0);
  CHECK(*free <= bytes_in("/proc/meminfo", "MemTotal:"));
  CHECK_FALSE(bytes_in("/proc/meminfo", "NoSuchKey:"));
  CHECK_FALSE(bytes_in("/proc/no-such-file", "MemTotal:"));
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

// What a command does as one of several ranks.
#include "cli/shell/devices.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/base/error.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

Launch rank_of_two(int rank) {
  Launch launch;
  launch.rank = rank;
  launch.ranks = 2;
  launch.local_ranks = 2;
  return launch;
}

TEST_CASE("ranks on a machine share its cores unless a number is given", "[cli]") {
  ::unsetenv("OMP_NUM_THREADS");
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  CHECK(threads_of_rank(0, Launch()) == 0);
  CHECK(threads_of_rank(3, Launch()) == 3);
  CHECK(threads_of_rank(3, rank_of_two(1)) == 3);
  CHECK(threads_of_rank(0, rank_of_two(1)) == std::max(1, cores / 2));
  ::setenv("OMP_NUM_THREADS", "1", 1);
  CHECK(threads_of_rank(0, rank_of_two(1)) == 0);
  ::unsetenv("OMP_NUM_THREADS");
}

TEST_CASE("errors name the rank only if there are several", "[cli]") {
  const auto fail = [] { throw_usage("no such file"); };
  CHECK_THAT(refusal_of([&] { with_rank_named(rank_of_two(1), fail); }),
             is_wrong_usage("rank 1: no such file"));
  CHECK(std::string(refusal_of([&] { with_rank_named(Launch(), fail); }).what()) == "no such file");
}

TEST_CASE("a single process joins no group", "[cli]") {
  const auto say = [](const std::string& words) { FAIL(words); };
  CHECK(join_process_group(Launch(), c10::kCPU, std::chrono::seconds(1), say) == nullptr);
}

TEST_CASE("every rank computes on the CPU if asked to", "[cli]") {
  CHECK(device_of_rank("cpu", rank_of_two(1)).is_cpu());
}

}  // namespace
}  // namespace regroup

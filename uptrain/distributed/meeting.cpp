#include "uptrain/distributed/meeting.h"

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

namespace regroup {
namespace {

constexpr std::chrono::milliseconds kPause{10};

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string greeting_of(int rank) { return fmt::format("regroup/greeting/{}", rank); }
std::string answer_to(const std::string& greeting) { return "regroup/answer/" + greeting; }
std::string arrival_of(const std::string& name, int rank) {
  return fmt::format("regroup/{}/arrived/{}", name, rank);
}

[[noreturn]] void fail(const std::string& what, std::chrono::milliseconds timeout) {
  C10_THROW_ERROR(DistStoreError,
                  fmt::format("{} within {} s", what,
                              std::chrono::duration_cast<std::chrono::seconds>(timeout).count()));
}

// Answers each rank until it has read the answer. A greeting that nobody reads an answer to is that
// of a rank that was killed, which its successor replaces.
void gather(c10d::Store& store, const std::string& name, int ranks,
            std::chrono::milliseconds timeout) {
  std::set<int> missing;
  for (int rank = 1; rank < ranks; ++rank) {
    missing.insert(rank);
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    std::erase_if(missing, [&](int rank) {
      if (store.check({arrival_of(name, rank)})) {
        return true;
      }
      if (store.check({greeting_of(rank)})) {
        store.set(answer_to(store.get_to_str(greeting_of(rank))), name);
      }
      return false;
    });
    if (missing.empty()) {
      return;
    }
    if (std::chrono::steady_clock::now() > end) {
      fail(fmt::format("rank {} did not arrive", fmt::join(missing, ", ")), timeout);
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

std::string meet_in(c10d::Store& store, int rank, int ranks, std::chrono::milliseconds timeout) {
  if (rank == 0) {
    const std::string name = random_name();
    gather(store, name, ranks, timeout);
    return name;
  }
  const std::string greeting = random_name();
  store.set(greeting_of(rank), greeting);
  try {
    store.wait({answer_to(greeting)}, timeout);
  } catch (const c10::Error&) {
    fail("rank 0 did not answer", timeout);
  }
  const std::string name = store.get_to_str(answer_to(greeting));
  store.set(arrival_of(name, rank), "");
  return name;
}

}  // namespace regroup

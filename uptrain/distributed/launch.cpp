#include "uptrain/distributed/launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

constexpr int kUsualPort = 29500;  // torchrun's
constexpr int kFirstJobPort = 20000;
constexpr int kJobPorts = 10000;
constexpr int kMostRanks = 1 << 20;

// The environment variables of one launcher.
struct Launcher {
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;
};

constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};
// Only processes of srun have a step. A batch script also has SLURM_PROCID.
constexpr Launcher kSlurm{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};

std::optional<int> number_in(const Environment& environment, const std::string& name, int lowest,
                             int highest) {
  const std::optional<std::string> text = name.empty() ? std::nullopt : environment(name);
  if (!text) {
    return std::nullopt;
  }
  int number = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, fault] = std::from_chars(text->data(), end, number);
  if (fault != std::errc() || stopped != end || number < lowest || number > highest) {
    throw_usage("environment: {} is \"{}\", allowed are {} to {}", name, printable(*text), lowest,
                highest);
  }
  return number;
}

int needed(const Environment& environment, const std::string& name, const std::string& other,
           int lowest, int highest) {
  const std::optional<int> number = number_in(environment, name, lowest, highest);
  if (!number) {
    throw_usage("environment: {} is set, {} is not: a run of several processes needs both", other,
                name);
  }
  return *number;
}

Launch ranks_by(const Launcher& launcher, const Environment& environment) {
  Launch launch;
  launch.launched = true;
  launch.ranks = needed(environment, launcher.ranks, launcher.rank, 1, kMostRanks);
  launch.rank = needed(environment, launcher.rank, launcher.ranks, 0, launch.ranks - 1);
  launch.local_rank =
      number_in(environment, launcher.local_rank, 0, kMostRanks).value_or(launch.rank);
  launch.local_ranks =
      number_in(environment, launcher.local_ranks, 1, kMostRanks).value_or(launch.local_rank + 1);
  return launch;
}

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

std::optional<std::string> variable_of_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

Launch launch_from(const Environment& environment) {
  const auto speaks = [&](const Launcher& launcher) {
    return environment(launcher.rank) || environment(launcher.ranks);
  };
  Launch launch;
  const auto* launcher = std::ranges::find_if(kLaunchers, speaks);
  if (launcher != std::end(kLaunchers)) {
    launch = ranks_by(*launcher, environment);
    launch.address = launch.local_ranks == launch.ranks ? "127.0.0.1" : "";
    launch.port = kUsualPort;
    launch.has_store = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  } else if (environment("SLURM_STEP_ID") && speaks(kSlurm)) {
    launch = ranks_by(kSlurm, environment);
    const auto nodes = environment("SLURM_STEP_NODELIST");
    launch.address = nodes ? first_host(*nodes) : "";
    // It depends on the job, so that two jobs on a machine do not connect to each other.
    const int job = number_in(environment, "SLURM_JOB_ID", 0, 1 << 30).value_or(0);
    launch.port = kFirstJobPort + job % kJobPorts;
  }
  launch.address = environment("MASTER_ADDR").value_or(launch.address);
  launch.port = number_in(environment, "MASTER_PORT", 1, 65535).value_or(launch.port);
  if (launch.address.empty() && !launch.alone()) {
    throw_usage(
        "environment: MASTER_ADDR is not set: rank {} of {} must know the machine of rank 0",
        launch.rank, launch.ranks);
  }
  return launch;
}

std::string first_host(const std::string& hosts) {
  const std::size_t end = hosts.find_first_of(",[");
  std::string host = hosts.substr(0, end);
  if (end != hosts.npos && hosts[end] == '[') {
    host += hosts.substr(end + 1, hosts.find_first_of("-,]", end) - end - 1);
  }
  return host;
}

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

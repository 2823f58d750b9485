// `regroup uptrain` as two processes that train one model.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>
#include <netinet/in.h>

#include "formats/base/json.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/distributed/two_ranks.h"
#include "tests/uptrain/run/uptrain_arguments.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A few steps with evaluations.
std::vector<std::string> short_arguments(const TemporaryDirectory& directory,
                                         const std::string& output) {
  std::vector<std::string> arguments = uptrain_arguments(directory, output);
  arguments[7] = "600";
  return with_all(arguments,
                  {"--eval-data", arguments[3], "--eval-every", "10", "--eval-max-tokens", "600"});
}

// What two ranks and one may differ by, relatively. They add the same numbers in another order: the
// norm of the gradients and the mean of the losses differ by a few units in fp32's last place
// (6e-8), and so do the masters after each step, 30 times.
constexpr double kOtherOrder = 1e-5;

// With weights in bf16, a master that such a difference moves across a boundary of rounding moves
// its weight by 2^-8. After 30 steps masters differ by up to 30 · 6e-8 of themselves; boundaries
// are 2^-8 apart: one in 2,000 crosses one. By Cauchy and Schwarz the loss then changes by up to
// ‖g‖ · 2^-8 · ‖w‖ · √(1/2000): 5e-3 for the fixture's ‖w‖ of 55 and gradients clipped to a norm of
// 1, and relative to its loss of about 4 by 1.2e-3.
constexpr double kOtherWeights = 2e-3;

// The rate is given: losses of trials that differ by rounding can choose another one.
void check_same_as_one_rank(const std::vector<std::string>& options,
                            double tolerance = kOtherOrder) {
  const TemporaryDirectory directory;
  const auto arguments = [&](const std::string& output, const std::string& accumulation) {
    return with_all(
        with_all(with_all(short_arguments(directory, output), {"--lr", "2e-4"}), options),
        {"--accumulate", accumulation});
  };
  REQUIRE(run_program(arguments("one", "2")).exit_code == 0);
  REQUIRE(run_program(arguments("half", "1")).exit_code == 0);
  run_two(arguments("two", "2"));
  const std::vector<double> one = figures_of(directory / "one.run");
  CHECK(one.size() == 30 * 3 + 4 * 2);
  CHECK(agree(figures_of(directory / "two.run"), one, tolerance));
  CHECK_FALSE(agree(figures_of(directory / "half.run"), one, tolerance));  // half of the batch
}

void check_lost(int signal_number, const std::vector<std::string>& options) {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "lost"), options);
  TwoRanks ranks(arguments);
  wait_for_path(directory / "lost.run/state-00000040");  // then the first is whole
  ranks.second.send(signal_number);
  const ProgramResult first = ranks.first.wait();
  CAPTURE(first.err);
  CHECK(first.exit_code == 4);
  CHECK(first.one_line_of_error());
  CHECK(first.err.find("rank 0: another rank has ended or does not answer") != std::string::npos);
  CHECK_FALSE(fs::exists(directory / "lost"));
  ranks.second.send(SIGKILL);
  CHECK(ranks.second.wait().exit_code == 128 + SIGKILL);
  run_two(with(arguments, "--resume"));
  CHECK(fs::exists(directory / "lost"));
}

}  // namespace

TEST_CASE("two ranks match one rank with both batches: AdamW", "[uptrain][ranks]") {
  check_same_as_one_rank({});
}

TEST_CASE("two ranks match one rank with both batches: Adafactor with clipping",
          "[uptrain][ranks]") {
  check_same_as_one_rank({"--optimizer", "adafactor", "--clip", "0.2"});
}

TEST_CASE("two ranks match one rank with both batches: only keys and values in bf16",
          "[uptrain][ranks]") {
  // Both ranks' gradients are rounded to bf16 before they are added, like those of micro-batches.
  check_same_as_one_rank({"--train", "kv", "--dtype", "bf16"}, kOtherWeights);
}

TEST_CASE("two ranks match one rank with both batches: compact masters", "[uptrain][ranks]") {
  check_same_as_one_rank({"--dtype", "bf16", "--memory", "compact"}, kOtherWeights);
}

TEST_CASE("two ranks match one rank with stored teacher logits", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = uptrain_arguments(directory, "unused");
  const std::string answers = (directory / "answers").string();
  const ProgramResult taught =
      run_program({"teach", golden("llama_bf16").string(), "--data", arguments[3], "--sequence",
                   "12", "--seed", "5", "--windows", "120", "--top", "8", "-o", answers});
  CAPTURE(taught.err);
  REQUIRE(taught.exit_code == 0);
  check_same_as_one_rank({"--teacher-logits", answers, "--teacher-weight", "1"});
}

// Two ranks of which each holds a part of the weights, against two that hold all of them. The same
// sums in the same order, so the same bytes, unless batches are summed: `same_order`.
void check_sharded(const std::vector<std::string>& options, bool same_order = true) {
  const TemporaryDirectory directory;
  const auto arguments = [&](const std::string& output, const std::string& shard) {
    return with_all(with_all(short_arguments(directory, output), options), {"--shard", shard});
  };
  run_two(arguments("whole", "optimizer"));
  run_two(arguments("shards", "full"));
  const std::vector<double> whole = figures_of(directory / "whole.run");
  REQUIRE(!whole.empty());
  if (same_order) {
    CHECK(figures_of(directory / "shards.run") == whole);
    CHECK(bytes_of_file(directory / "shards/model.safetensors") ==
          bytes_of_file(directory / "whole/model.safetensors"));
  } else {
    CHECK(agree(figures_of(directory / "shards.run"), whole));
  }
}

TEST_CASE("two ranks with a part of the weights each train the same model", "[uptrain][ranks]") {
  check_sharded({"--lr", "1e-3"});  // an odd number of batches is evaluated
  check_sharded({"--lr", "1e-3", "--activation-checkpointing", "--clip", "0.2"});
  check_sharded({"--lr", "1e-3", "--accumulate", "4"}, /*same_order=*/false);
}

TEST_CASE("two ranks with a part of the weights each train keys and values in bf16",
          "[uptrain][ranks]") {
  check_sharded({"--train", "kv", "--dtype", "bf16", "--lr", "1e-3"});
  check_sharded({"--optimizer", "adafactor", "--dtype", "bf16", "--memory", "compact"});
}

TEST_CASE("two ranks with a part of the weights each share out the teacher, too",
          "[uptrain][ranks]") {
  check_sharded(
      {"--teacher", golden("llama_bf16").string(), "--distill-attention", "0.1", "--lr", "1e-3"});
}

TEST_CASE("two ranks with a part of the weights each find the same learning rate",
          "[uptrain][ranks]") {
  check_sharded({});
}

TEST_CASE("an encoder-decoder trains with a part of the weights on each rank", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = [&](const std::string& output, const std::string& shard) {
    auto all = with_all(uptrain_arguments(directory, output),
                        {"--shard", shard, "--objective", "continuation", "--lr", "1e-3"});
    all[1] = golden("t5").string();
    put_file(all[3], bytes_of_numbers(learnable_text(3000, 36)));
    return all;
  };
  run_two(arguments("whole", "optimizer"));
  run_two(arguments("shards", "full"));
  CHECK(bytes_of_file(directory / "shards/model.safetensors") ==
        bytes_of_file(directory / "whole/model.safetensors"));
}

TEST_CASE("a run with a part of the weights on each rank goes on in other ways",
          "[uptrain][ranks]") {
  check_lost(SIGKILL, {"--shard", "full"});
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "out"), {"--lr", "2e-4"});
  REQUIRE(run_program(with_all(with_all(uptrain_arguments(directory, "one"), {"--lr", "2e-4"}),
                               {"--accumulate", "2"}))
              .exit_code == 0);
  {
    TwoRanks ranks(with_all(arguments, {"--shard", "full"}));
    wait_for_steps(directory / "out.run", 33);
    ranks.second.send(SIGINT);
    CHECK(ranks.first.wait().exit_code == kExitStateSaved);
    CHECK(ranks.second.wait().exit_code == kExitStateSaved);
  }
  CHECK(run_program(with(arguments, "--resume")).exit_code == 0);  // one rank
  CHECK(agree(figures_of(directory / "out.run"), figures_of(directory / "one.run")));
}

TEST_CASE("a single process has nobody to share its weights with", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const ProgramResult result =
      run_program(with_all(uptrain_arguments(directory, "out"), {"--shard", "full"}));
  CHECK(result.exit_code == 2);
  CHECK(result.one_line_of_error());
  CHECK(result.err.find("--shard full needs several ranks") != std::string::npos);
}

TEST_CASE("two ranks find the same learning rate as one", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = [&](const std::string& output) {
    return with_all(uptrain_arguments(directory, output), {"--accumulate", "2"});
  };
  REQUIRE(run_program(arguments("one")).exit_code == 0);
  run_two(arguments("two"));
  const auto recipe_of = [&](const char* output) {
    return Json::parse(bytes_of_file(directory / output / "config.json"))["regroup"]["uptrain"];
  };
  CHECK(recipe_of("one")["found_learning_rate"] == true);
  CHECK(recipe_of("two")["learning_rate"] == recipe_of("one")["learning_rate"]);
  // Rounding differs, and grows with the steps: at the rate found, beyond what agree() allows.
  const auto first_steps_of = [&](const char* run) {
    std::vector<double> figures = figures_of(directory / run);
    figures.resize(10 * 3);
    return figures;
  };
  CHECK(agree(first_steps_of("two.run"), first_steps_of("one.run")));
}

TEST_CASE("if a rank is killed the other ends with one line and the run can be resumed",
          "[uptrain][ranks]") {
  check_lost(SIGKILL, {});
}

TEST_CASE("if a rank does not respond the other ends within the timeout", "[uptrain][ranks]") {
  check_lost(SIGSTOP, {"--timeout", "3"});
}

TEST_CASE("a missing rank is waited for no longer than the timeout", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const ProgramResult result =
      run_program(with_all(uptrain_arguments(directory, "out"), {"--quiet", "--timeout", "2"}),
                  as_rank(0, free_port()));
  CAPTURE(result.err);
  CHECK(result.exit_code == 4);
  CHECK(result.one_line_of_error());
  CHECK(result.err.find("rank 0: cannot connect to the other ranks, 2 in all") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("ranks with different settings report them and end", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = uptrain_arguments(directory, "out");
  TwoRanks ranks(arguments, with_all(arguments, {"--lr", "0.5"}));
  for (RunningProgram* rank : {&ranks.first, &ranks.second}) {
    const ProgramResult result = rank->wait();
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find("rank 1 was started with other settings: learning_rate is 0.5 there") !=
          std::string::npos);
  }
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

// Two ranks of which one has more options: both say which, in one line, and nothing is written.
void check_differ(const TemporaryDirectory& directory, const std::vector<std::string>& first,
                  const std::vector<std::string>& second, const std::string& said) {
  const auto before = tree_of(directory.path());
  TwoRanks ranks(with_all(first, {"--timeout", "60"}), with_all(second, {"--timeout", "60"}));
  for (RunningProgram* rank : {&ranks.first, &ranks.second}) {
    const ProgramResult result = rank->wait();
    CAPTURE(result.err);
    CHECK(result.exit_code == kExitUsage);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find("rank 1 was started with other settings: ") != std::string::npos);
    CHECK(result.err.find(said) != std::string::npos);
  }
  CHECK(tree_of(directory.path()) == before);
}

TEST_CASE("an option that only one rank has is named by both", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "out"), {"--lr", "2e-4"});
  const std::string teacher = golden("llama_bf16").string();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--teacher", teacher}, "(--teacher)"},
      {{"--documents", "separate", "--document-end", "3"}, "(--documents)"},
      {{"--moments", "bf16", "--beta2", "0.95"}, "(--moments)"},
      {{"--teacher", teacher, "--distill-attention", "0.1"}, "(--distill-attention)"},
  };
  for (const auto& [options, said] : cases) {
    CAPTURE(said);
    check_differ(directory, arguments, with_all(arguments, options), said);
    check_differ(directory, with_all(arguments, options), arguments, said);
  }
}

TEST_CASE("ranks with other data of the same size say so", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "out"), {"--lr", "2e-4"});
  std::string text = bytes_of_file(arguments[3]);
  text[2000] = static_cast<char>(text[2000] ^ 1);
  put_file(directory / "other.bin", text);
  auto others = arguments;
  others[3] = (directory / "other.bin").string();
  check_differ(directory, arguments, others, "data_digest");
  check_differ(directory, with_all(arguments, {"--eval-data", arguments[3]}),
               with_all(arguments, {"--eval-data", others[3]}), "(--eval-data)");
}

TEST_CASE("all ranks resume, or none", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "out"), {"--lr", "2e-4"});
  {
    TwoRanks ranks(arguments);
    wait_for_steps(directory / "out.run", 25);
    ranks.second.send(SIGINT);
    REQUIRE(ranks.first.wait().exit_code == kExitStateSaved);
    REQUIRE(ranks.second.wait().exit_code == kExitStateSaved);
  }
  for (const char* option : {"--resume", "--resume=auto"}) {
    check_differ(directory, with(arguments, option), arguments, "(--resume)");
    check_differ(directory, arguments, with(arguments, option), "(--resume)");
  }
  run_two(with(arguments, "--resume"));
}

// Accepts connections and is silent.
class SilentListener {
 public:
  SilentListener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(socket_, 8) == 0);
  }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;
  ~SilentListener() { ::close(socket_); }
  int port() const { return port_; }

 private:
  int port_ = free_port();
  int socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
};

TEST_CASE("a listener that is no rank and says nothing is given up within the timeout",
          "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const SilentListener listener;
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result =
      run_program(with_all(uptrain_arguments(directory, "out"), {"--quiet", "--timeout", "2"}),
                  as_rank(1, listener.port()));
  CAPTURE(result.err);
  CHECK(result.exit_code == kExitEnvironment);
  CHECK(result.one_line_of_error());
  CHECK(result.err.find("rank 1: cannot connect to the other ranks") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("a rank that waits for others says so and ends with the first signal",
          "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const SilentListener listener;
  const bool silent = GENERATE(true, false);
  const int rank = silent ? 1 : GENERATE(0, 1);
  const int port = silent ? listener.port() : free_port();
  const int signal_number = GENERATE(SIGINT, SIGTERM);
  CAPTURE(rank, silent, signal_number);
  const std::string said = (directory / "said").string();
  RunningProgram program(
      uptrain_arguments(directory, "out"),
      with_all(as_rank(rank, port),
               {"bash", "-c", "exec \"$@\" 2> >(tee '" + said + "' >&2)", "bash"}));
  const auto told = [&] {
    return fs::exists(said) &&
           bytes_of_file(said).find("waits for the other ranks, 2 in all") != std::string::npos;
  };
  for (int tries = 0; tries < 6000 && !told(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(told());
  const auto begin = std::chrono::steady_clock::now();
  program.send(signal_number);
  CHECK(program.wait().exit_code == 128 + signal_number);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("a number of batches that the ranks cannot divide is refused", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const ProgramResult result =
      run_program(with_all(uptrain_arguments(directory, "out"), {"--accumulate", "3"}),
                  as_rank(0, free_port()));
  CHECK(result.exit_code == 2);
  CHECK(result.one_line_of_error());
  CHECK(result.err.find("3 batches in a step cannot be shared by 2 ranks") != std::string::npos);
}

TEST_CASE("the plan of several ranks counts all their batches", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "out"), {"--dry-run", "--json"});
  const Json plan = run_program(arguments, as_rank(0, free_port())).json();
  CHECK(plan["ranks"] == 2);
  CHECK(plan["tokens_per_step"] == 2 * 2 * 12);
  CHECK(run_program(arguments, as_rank(1, free_port())).out.empty());
}

TEST_CASE("a plan for ranks that are not there is that of these ranks", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  for (const char* shard : {"optimizer", "full"}) {
    const auto arguments =
        with_all(uptrain_arguments(directory, "out"), {"--dry-run", "--json", "--shard", shard});
    const Json there = run_program(arguments, as_rank(0, free_port())).json();
    const Json planned = run_program(with_all(arguments, {"--ranks", "2"})).json();
    for (const char* key : {"ranks", "recipe", "tokens_per_step", "memory", "traffic_bytes"}) {
      CHECK(planned[key] == there[key]);
    }
    const Json apart =
        run_program(with_all(arguments, {"--ranks", "2", "--ranks-per-machine", "1"})).json();
    const auto of_machine = [](const Json& plan) {
      return plan["memory_modes"][0]["memory_bytes"].get<double>();
    };
    CHECK(of_machine(planned) == 2 * of_machine(apart));
    const Json more = run_program(with_all(arguments, {"--ranks", "4"})).json();
    CHECK(more["ranks"] == 4);
    CHECK(more["tokens_per_step"] == 4 * 2 * 12);
    CHECK(more["memory"] != there["memory"]);
  }
}

TEST_CASE("only a plan can be for ranks that are not there", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "out"), {"--ranks", "2"});
  const auto refused = [](const ProgramResult& result, const std::string& why) {
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find(why) != std::string::npos);
  };
  refused(run_program(arguments), "--dry-run");
  refused(run_program(with(arguments, "--dry-run"), as_rank(0, free_port())),
          "one of several ranks already");
  refused(run_program(with_all(arguments, {"--dry-run", "--ranks-per-machine", "4"})),
          "allowed are up to 2");
}

}  // namespace regroup

// `regroup uptrain` as two processes that train one model.
#include <algorithm>
#include <csignal>
#include <fstream>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/json/json.h"
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

void check_same_as_one_rank(const std::vector<std::string>& options) {
  const TemporaryDirectory directory;
  const auto arguments = [&](const std::string& output, const std::string& accumulation) {
    return with_all(with_all(short_arguments(directory, output), options),
                    {"--accumulate", accumulation});
  };
  REQUIRE(run_program(arguments("one", "2")).exit_code == 0);
  REQUIRE(run_program(arguments("half", "1")).exit_code == 0);
  run_two(arguments("two", "2"));
  const std::vector<double> one = figures_of(directory / "one.run");
  CHECK(one.size() == 30 * 3 + 4 * 2);
  CHECK(agree(figures_of(directory / "two.run"), one));
  CHECK_FALSE(agree(figures_of(directory / "half.run"), one));  // half of the batch differs
}

void check_lost(int signal_number, const std::vector<std::string>& options) {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "lost"), options);
  TwoRanks ranks(arguments);
  wait_for_steps(directory / "lost.run", 25);
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
  check_same_as_one_rank({"--optimizer", "adafactor", "--clip", "0.2", "--lr", "0.01"});
}

TEST_CASE("two ranks match one rank with both batches: only keys and values in bf16",
          "[uptrain][ranks]") {
  // Both ranks' gradients are rounded to bf16 before they are added, like those of micro-batches.
  check_same_as_one_rank({"--train", "kv", "--dtype", "bf16"});
}

TEST_CASE("two ranks match one rank with both batches: compact masters", "[uptrain][ranks]") {
  check_same_as_one_rank({"--dtype", "bf16", "--memory", "compact"});
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

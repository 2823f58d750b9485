// `regroup uptrain` and `regroup eval` as a user meets them: signals, kills, exit codes.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/program.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr int kStateSaved = 75;

std::vector<std::string> uptrain_arguments(const TemporaryDirectory& directory,
                                           const std::string& output) {
  const fs::path data = directory / "training.bin";
  put_file(data, bytes_of_numbers(learnable_text(3000, 64)));
  return {"uptrain",          golden("llama").string(),
          "--data",           data.string(),
          "--alpha",          "0.05",
          "--pretrain-steps", "6000",
          "--sequence",       "12",
          "--batch",          "2",
          "--output",         (directory / output).string(),
          "--save-every",     "20",
          "--threads",        "1",
          "--seed",           "5"};
}

std::vector<std::string> with(std::vector<std::string> arguments, const std::string& more) {
  arguments.push_back(more);
  return arguments;
}

// Waits until the run has taken `steps` steps.
void wait_for_steps(const fs::path& run, std::ptrdiff_t steps) {
  for (int tries = 0; tries < 6000; ++tries) {
    std::ifstream metrics(run / "metrics.jsonl");
    if (std::count(std::istreambuf_iterator<char>(metrics), {}, '\n') >= steps) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL("the run never got to step " << steps);
}

}  // namespace

TEST_CASE("SIGTERM saves the state, and --resume ends as if nothing had been", "[uptrain]") {
  const TemporaryDirectory directory;
  REQUIRE(run_program(uptrain_arguments(directory, "whole")).exit_code == 0);
  const auto arguments = uptrain_arguments(directory, "stopped");
  RunningProgram program(arguments);
  wait_for_steps(directory / "stopped.run", 33);
  program.send(SIGTERM);
  const ProgramResult stopped = program.wait();
  CHECK(stopped.exit_code == kStateSaved);
  CHECK(stopped.err.find("--resume") != std::string::npos);
  CHECK_FALSE(fs::exists(directory / "stopped"));
  const ProgramResult resumed = run_program(with(arguments, "--resume"));
  CHECK(resumed.exit_code == 0);
  CHECK(tree_of(directory / "stopped") == tree_of(directory / "whole"));
}

TEST_CASE("a run that is killed, whenever that is, goes on to the same end", "[uptrain]") {
  const TemporaryDirectory directory;
  REQUIRE(run_program(uptrain_arguments(directory, "whole")).exit_code == 0);
  const auto arguments = uptrain_arguments(directory, "killed");
  bool begun = false;
  for (const std::ptrdiff_t steps : {1, 19, 20, 47, 90, 151}) {
    CAPTURE(steps);
    RunningProgram program(begun ? with(arguments, "--resume") : arguments);
    wait_for_steps(directory / "killed.run", steps);
    program.send(SIGKILL);
    CHECK(program.wait().exit_code == 128 + SIGKILL);
    CHECK_FALSE(fs::exists(directory / "killed"));
    begun = true;
  }
  CHECK(run_program(with(arguments, "--resume")).exit_code == 0);
  CHECK(tree_of(directory / "killed") == tree_of(directory / "whole"));
}

TEST_CASE("wrong requests end with one line and their exit code", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto good = uptrain_arguments(directory, "out");
  const auto check = [&](std::vector<std::string> arguments, int exit_code,
                         const std::string& word) {
    const ProgramResult result = run_program(arguments);
    CAPTURE(result.err, arguments);
    CHECK(result.exit_code == exit_code);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find(word) != std::string::npos);
    CHECK_FALSE(fs::exists(directory / "out"));
    CHECK_FALSE(fs::exists(directory / "out.run"));
  };
  const auto changed = [&](std::size_t at, const std::string& value) {
    auto arguments = good;
    arguments[at] = value;
    return arguments;
  };
  check(changed(5, "0"), 2, "alpha is 0");
  check(changed(1, (directory / "none").string()), 3, "none");
  check(changed(3, (directory / "none.bin").string()), 3, "none.bin");
  check(changed(9, "4000"), 3, "3000 tokens");
  check(with(good, "--resume"), 2, "no run to resume");
  check(with(good, "--no-such-option"), 2, "no-such-option");
  check({"eval", golden("llama").string(), "--data", good[3], "--context", "3000"}, 3, "3001");
  check({"eval", golden("llama").string(), "--data", good[3], "--device", "tpu"}, 2, "tpu");
}

TEST_CASE("a dry run shows the plan and leaves nothing", "[uptrain]") {
  const TemporaryDirectory directory;
  auto arguments = uptrain_arguments(directory, "out");
  arguments.insert(arguments.end(), {"--dry-run", "--json"});
  const ProgramResult result = run_program(arguments);
  REQUIRE(result.exit_code == 0);
  CHECK(result.json()["steps"] == 300);
  CHECK(result.json()["tokens"] == 300 * 24);
  CHECK(tree_of(directory.path()).size() == 1);
}

TEST_CASE("options of a run can come from a file", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto arguments = uptrain_arguments(directory, "out");
  put_file(directory / "run.toml",
           "[uptrain]\nalpha = 0.01\npretrain-steps = 4000\n"
           "sequence = 12\ndata = [\"" +
               arguments[3] + "\"]\n");
  const auto run = [&](const std::string& file) {
    return run_program({"uptrain", arguments[1], "--output", arguments[13], "--config", file,
                        "--dry-run", "--json"});
  };
  const ProgramResult result = run((directory / "run.toml").string());
  REQUIRE(result.exit_code == 0);
  CHECK(result.json()["steps"] == 40);
  put_file(directory / "wrong.toml", "[uptrain]\nalhpa = 0.01\n");
  CHECK(run((directory / "wrong.toml").string()).exit_code == 2);
}

TEST_CASE("eval writes the logits of transformers and reports loss as JSON", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase subject = load_golden_case("bloom_12");
  const at::Tensor flat = subject.tokens.flatten().contiguous();
  const auto* ids = flat.const_data_ptr<std::int64_t>();
  put_file(directory / "tokens",
           bytes_of_numbers(std::vector<std::uint16_t>(ids, ids + flat.numel())));
  const std::vector<std::string> arguments{"eval",      golden("bloom_12").string(),
                                           "--data",    (directory / "tokens").string(),
                                           "--context", std::to_string(subject.tokens.size(1))};
  auto writing = arguments;
  writing.insert(writing.end(), {"--logits", (directory / "logits.safetensors").string()});
  REQUIRE(run_program(writing).exit_code == 0);
  CHECK(largest_difference(read_tensor(directory / "logits.safetensors", "logits"),
                           subject.logits) <= 1e-4);
  const Json report = run_program(with(arguments, "--json")).json();
  for (const char* key :
       {"loss", "perplexity", "tokens", "context", "seconds", "tokens_per_second"}) {
    CHECK(report.contains(key));
  }
}

TEST_CASE("eval says what it asks of models with an encoder, uptrain that it knows none",
          "[uptrain]") {
  constexpr int kWrongUsage = 2, kBadInput = 3;
  const TemporaryDirectory directory;
  const std::string data = (directory / "tokens").string();
  put_file(data, bytes_of_numbers(learnable_text(200, 40)));
  const auto eval = [&](const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", golden(name).string(), "--data", data, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  CHECK(eval("t5", {"--context", "21"}).json()["objective"] == "continuation");
  CHECK(eval("t5", {"--context", "21"}).json()["tokens"] == 9 * 11);
  CHECK(eval("bert", {"--mask-token", "3"}).json()["objective"] == "masked_tokens");
  CHECK(eval("bert", {"--mask-token", "3"}).json()["loss"] !=
        eval("bert", {"--mask-token", "3", "--seed", "1"}).json()["loss"]);
  CHECK(eval("bert", {}).exit_code == kWrongUsage);
  CHECK(eval("t5", {"--mask-token", "3"}).exit_code == kWrongUsage);
  for (const char* name : {"t5", "bert"}) {
    const ProgramResult result =
        run_program({"uptrain", golden(name).string(), "--data", data, "--steps", "1", "--output",
                     (directory / "out").string()});
    CHECK(result.exit_code == kBadInput);
    CHECK(result.one_line_of_error());
  }
  CHECK(tree_of(directory.path()).size() == 1);
}

}  // namespace regroup

// `regroup uptrain` as several processes that share each sequence.
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/distributed/two_ranks.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/run/uptrain_arguments.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

using Options = std::vector<std::string>;

// 30 steps of two sequences of 16 tokens, at a rate at which roundings stay small.
Options sequence_arguments(const TemporaryDirectory& directory, const std::string& model,
                           const char* output, const Options& options) {
  Options all = uptrain_arguments(directory, output);
  all[1] = golden(model).string();
  all[7] = "600";
  all[9] = "16";
  put_file(all[3], bytes_of_numbers(learnable_text(3000, 36)));
  return with_all(with_all(all, {"--lr", "2e-4", "--eval-data", all[3], "--eval-every", "10",
                                 "--eval-max-tokens", "600"}),
                  options);
}

// Whether two ranks, each with half of every sequence, train as one process does; or four.
void check_shared(const std::string& model, const Options& options = {}, double tolerance = 1e-5,
                  bool by_four = false) {
  const TemporaryDirectory directory;
  CAPTURE(model, options);
  const auto arguments = [&](const char* output, const Options& more) {
    return sequence_arguments(directory, model, output, with_all(options, more));
  };
  const ProgramResult alone = run_program(arguments("one", {"--accumulate", "1"}));
  CAPTURE(alone.err);
  REQUIRE(alone.exit_code == 0);
  if (by_four) {
    run_four(arguments("several", {"--sequence-parallel", "4"}));
  } else {
    run_two(arguments("several", {"--sequence-parallel", "2"}));
  }
  const std::vector<double> one = figures_of(directory / "one.run");
  REQUIRE(one.size() == 30 * 3 + 4 * 2);
  CHECK(agree(figures_of(directory / "several.run"), one, tolerance));
}

ProgramResult refused(const std::string& model, const Options& options) {
  const TemporaryDirectory directory;
  ProgramResult result =
      run_program(sequence_arguments(directory, model, "out", with_all(options, {"--dry-run"})));
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.one_line_of_error());
  return result;
}

bool says(const ProgramResult& result, const std::string& text) {
  CAPTURE(result.err);
  return result.err.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks share sequences with rotary positions", "[uptrain][ranks]") {
  check_shared("llama");
  // Its frequencies depend on the length of the whole sequence.
  check_shared("llama_rope_dynamic", {}, 1e-5, /*by_four=*/true);
}

TEST_CASE("ranks share sequences with ALiBi", "[uptrain][ranks]") {
  check_shared("bloom");
  check_shared("mpt", {"--activation-checkpointing"});
}

TEST_CASE("ranks share sequences of a model whose output head has a bias", "[uptrain][ranks]") {
  check_shared("phi");
}

TEST_CASE("ranks share sequences with learned positions", "[uptrain][ranks]") {
  check_shared("gpt2", {"--activation-checkpointing"});
}

TEST_CASE("ranks share sequences with windows and caps across the seams", "[uptrain][ranks]") {
  check_shared("mistral", {}, 1e-5, /*by_four=*/true);
  // Four norms in each block amplify rounding.
  check_shared("gemma2", {"--activation-checkpointing"}, 1e-4);
}

TEST_CASE("ranks share sequences of models with experts and their balance", "[uptrain][ranks]") {
  check_shared("olmoe");
  check_shared("deepseek", {"--activation-checkpointing"});
}

TEST_CASE("ranks share sequences in bf16", "[uptrain][ranks]") {
  // The parts' results are rounded before they are added, so that later steps differ.
  check_shared("llama", {"--dtype", "bf16"}, 5e-2);
}

TEST_CASE("ranks share sequences that end before some of their parts", "[uptrain][ranks]") {
  const Options ends = {"--documents", "separate", "--document-end", "3"};
  check_shared("llama", ends, 1e-5, /*by_four=*/true);
  check_shared("olmoe", with_all(ends, {"--train", "attention"}));
}

TEST_CASE("ranks share the teacher's sequences", "[uptrain][ranks]") {
  check_shared("llama", {"--teacher", golden("llama_bf16").string(), "--documents", "separate",
                         "--document-end", "3"});
}

TEST_CASE("ranks with parts of sequences learn from stored logits", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const Options ends = {"--documents", "separate", "--document-end", "3"};
  const Options training = sequence_arguments(directory, "llama", "unused", {});
  const ProgramResult taught = run_program(
      with_all({"teach", golden("llama_bf16").string(), "--data", training[3], "--sequence", "16",
                "--seed", "5", "--windows", "60", "--output", (directory / "logits").string()},
               ends));
  CAPTURE(taught.err);
  REQUIRE(taught.exit_code == 0);
  check_shared("llama", with_all(ends, {"--teacher-logits", (directory / "logits").string(),
                                        "--other-teacher"}));
}

TEST_CASE("ranks share sequences, weights and batches at once", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  for (const auto& options : std::vector<Options>{
           {}, {"--optimizer", "adafactor", "--clip", "0.2", "--activation-checkpointing"}}) {
    const auto arguments = [&](const char* output, const Options& more) {
      return sequence_arguments(directory, "llama", output,
                                with_all(with_all(options, {"--accumulate", "4"}), more));
    };
    for (const char* output : {"one", "one.run", "four", "four.run"}) {
      fs::remove_all(directory / output);
    }
    REQUIRE(run_program(arguments("one", {})).exit_code == 0);
    run_four(
        arguments("four", {"--sequence-parallel", "2", "--shard", "full", "--replicate", "2"}));
    CHECK(agree(figures_of(directory / "four.run"), figures_of(directory / "one.run")));
  }
}

TEST_CASE("ranks that share sequences find the learning rate of one process", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = [&](const char* output, const Options& more) {
    Options all = with_all(uptrain_arguments(directory, output), more);
    all[7] = "1400";  // 70 steps: with trials
    return with_all(all, {"--accumulate", "2"});
  };
  REQUIRE(run_program(arguments("one", {})).exit_code == 0);
  run_four(arguments("four", {"--sequence-parallel", "2"}));
  const auto rate_of = [&](const char* output) {
    return Json::parse(
        bytes_of_file(directory / output / "config.json"))["regroup"]["uptrain"]["learning_rate"];
  };
  CHECK(rate_of("four") == rate_of("one"));
}

TEST_CASE("a run with shared sequences goes on without", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto whole = with_all(uptrain_arguments(directory, "whole"), {"--lr", "2e-4"});
  REQUIRE(run_program(with_all(whole, {"--accumulate", "2"})).exit_code == 0);
  const auto arguments =
      with_all(uptrain_arguments(directory, "out"), {"--lr", "2e-4", "--accumulate", "2"});
  interrupt_four(with_all(arguments, {"--sequence-parallel", "2"}), directory / "out.run", 33);
  run_two(with(arguments, "--resume"));
  CHECK(agree(figures_of(directory / "out.run"), figures_of(directory / "whole.run")));
}

TEST_CASE("ranks that share sequences stop together in an evaluation", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const fs::path text = directory / "long.bin";
  put_file(text, bytes_of_numbers(learnable_text(400'000, 36)));
  const Options arguments =
      with_all(uptrain_arguments(directory, "out"),
               {"--lr", "2e-4", "--sequence-parallel", "2", "--eval-data", text.string()});
  TwoRanks ranks(arguments);
  const fs::path metrics = directory / "out.run/metrics.jsonl";
  for (int tries = 0; tries < 6000 && !fs::exists(metrics); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ranks.second.send(SIGINT);
  CHECK(ranks.second.wait().exit_code == kExitStateSaved);
  CHECK(ranks.first.wait().exit_code == kExitStateSaved);
  CHECK(figures_of(directory / "out.run").empty());  // the evaluation before the first step
}

TEST_CASE("ranks that would exchange other tensors say so", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const Options arguments =
      with_all(uptrain_arguments(directory, "out"), {"--lr", "2e-4", "--sequence-parallel", "2"});
  TwoRanks ranks(arguments, with(arguments, "--activation-checkpointing"));
  const ProgramResult first = ranks.first.wait();
  CHECK(first.exit_code == 2);
  CHECK(ranks.second.wait().exit_code == 2);
  CHECK(says(first, "activation_checkpointing is true there, false on rank 0"));
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("a plan counts what ranks with parts of sequences keep and exchange",
          "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto plan_of = [&](const Options& options) {
    const ProgramResult result = run_program(sequence_arguments(
        directory, "llama", "out", with_all(options, {"--dry-run", "--json", "--ranks", "4"})));
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    return result.json();
  };
  const Json whole = plan_of({});
  const Json shared = plan_of({"--sequence-parallel", "4"});
  CHECK(whole["sequence_parallel"] == 1);
  CHECK(shared["sequence_parallel"] == 4);
  CHECK(whole["traffic_bytes"]["sequences"] == 0.0);
  // Keys and values of 2 layers and 4 heads of 8, for 12 of 16 tokens in two sequences: they are
  // received once, and their gradients are sent.
  CHECK(shared["traffic_bytes"]["sequences"] == (2 * 2 * 4 * 8) * 24 * (4 + 4));
  CHECK(shared["memory"]["activations"] < whole["memory"]["activations"]);
  CHECK(shared["recipe"] == plan_of({"--accumulate", "1", "--sequence-parallel", "4"})["recipe"]);
}

TEST_CASE("metrics say what a rank exchanges, as the plan does", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  for (const Options& options : std::vector<Options>{{"--accumulate", "2"},
                                                     {"--accumulate", "2", "--shard", "full"},
                                                     {"--sequence-parallel", "2"}}) {
    CAPTURE(options);
    fs::remove_all(directory / "out");
    fs::remove_all(directory / "out.run");
    const Options arguments = sequence_arguments(directory, "llama", "out", options);
    const ProgramResult planned =
        run_program(with_all(arguments, {"--dry-run", "--json", "--ranks", "2"}));
    REQUIRE(planned.exit_code == 0);
    double traffic = 0.0;
    const Json plan = planned.json();
    for (const Json& bytes : plan["traffic_bytes"]) {
      traffic += bytes.get<double>();
    }
    run_two(arguments);
    std::ifstream metrics(directory / "out.run/metrics.jsonl");
    int steps = 0;
    double exchanged = 0.0;
    for (std::string text; std::getline(metrics, text);) {
      const Json line = Json::parse(text);
      if (!line.contains("loss")) {
        continue;
      }
      ++steps;
      CHECK(line["waited_seconds"] > 0.0);
      CHECK(line["waited_seconds"] < line["seconds"]);
      exchanged += line["sent_bytes"].get<double>() + line["received_bytes"].get<double>();
    }
    CHECK(steps == 30);
    CHECK(std::abs(exchanged / steps / traffic - 1) < 0.05);  // ranks own unequal parts of weights
  }
}

TEST_CASE("sequences that ranks cannot share are refused", "[uptrain][ranks]") {
  CHECK(says(refused("llama", {"--sequence-parallel", "2"}), "needs several ranks"));
  CHECK(says(refused("llama", {"--ranks", "4", "--sequence-parallel", "3"}),
             "4 ranks cannot be divided into groups of 3 that share windows"));
  CHECK(says(refused("llama", {"--ranks", "3", "--sequence-parallel", "3"}),
             "windows of 16 tokens cannot be shared by 3 ranks"));
  CHECK(says(refused("llama", {"--ranks", "4", "--sequence-parallel", "2", "--accumulate", "3"}),
             "3 batches in a step cannot be shared by 2 groups of 2 ranks"));
  CHECK(says(refused("llama", {"--ranks", "2", "--sequence-parallel", "2", "--teacher",
                               golden("llama_bf16").string(), "--distill-attention", "1"}),
             "--distill-attention"));
  CHECK(says(
      refused("t5", {"--ranks", "2", "--sequence-parallel", "2", "--objective", "continuation"}),
      "decoder-only"));
  CHECK(says(refused("bert", {"--ranks", "2", "--sequence-parallel", "2", "--mask-token", "3"}),
             "causal"));
}

}  // namespace regroup

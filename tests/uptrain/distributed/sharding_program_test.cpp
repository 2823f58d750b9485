// `regroup uptrain` as several processes: what each of them holds of the model.
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

// At this rate, differences in rounding stay below what agree() allows for all of the run.
std::vector<std::string> gentle_arguments(const TemporaryDirectory& directory, const char* output,
                                          const std::vector<std::string>& options) {
  return with_all(with_all(uptrain_arguments(directory, output), {"--lr", "2e-4"}), options);
}

// Two ranks that share the weights of a model train it as two ranks that have all of them do.
void check_family(const std::string& model, const std::vector<std::string>& options) {
  const TemporaryDirectory directory;
  CAPTURE(model);
  const auto arguments = [&](const char* output, const char* shard) {
    auto all = gentle_arguments(directory, output, with_all(options, {"--shard", shard}));
    all[1] = golden(model).string();
    all[7] = "600";
    put_file(all[3], bytes_of_numbers(learnable_text(3000, 36)));
    return all;
  };
  run_two(arguments("whole", "optimizer"));
  run_two(arguments("shards", "full"));
  const std::vector<double> whole = figures_of(directory / "whole.run");
  REQUIRE(whole.size() == 30 * 3);
  CHECK(figures_of(directory / "shards.run") == whole);
  CHECK(bytes_of_file(directory / "shards/model.safetensors") ==
        bytes_of_file(directory / "whole/model.safetensors"));
}

Json plan_of(const TemporaryDirectory& directory, const std::vector<std::string>& options) {
  const ProgramResult result = run_program(
      with_all(uptrain_arguments(directory, "out"), with_all(options, {"--dry-run", "--json"})));
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return result.json();
}

}  // namespace

TEST_CASE("two ranks share the weights of a mixture of experts", "[uptrain][ranks]") {
  check_family("mixtral", {});
  check_family("olmoe", {"--activation-checkpointing"});
}

TEST_CASE("two ranks share the weights of a Gemma 2 with its windows, norms and caps",
          "[uptrain][ranks]") {
  check_family("gemma2", {});
  check_family("gemma2", {"--activation-checkpointing", "--dtype", "bf16"});
}

TEST_CASE("four ranks that hold two copies of the weights train the same model",
          "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const std::string batches = "8";  // two for each of four ranks
  for (const auto& options : std::vector<std::vector<std::string>>{
           {}, {"--optimizer", "adafactor", "--clip", "0.2", "--activation-checkpointing"}}) {
    const auto arguments = [&](const char* output, const std::vector<std::string>& more) {
      auto all = gentle_arguments(directory, output, with_all(options, more));
      all[7] = "600";
      return with_all(all, {"--accumulate", batches, "--eval-data", all[3], "--eval-every", "10",
                            "--eval-max-tokens", "600"});
    };
    for (const char* output : {"one", "one.run", "four", "four.run"}) {
      fs::remove_all(directory / output);
    }
    REQUIRE(run_program(arguments("one", {})).exit_code == 0);
    run_four(arguments("four", {"--shard", "full", "--replicate", "2"}));
    const std::vector<double> one = figures_of(directory / "one.run");
    REQUIRE(one.size() == 30 * 3 + 4 * 2);
    CHECK(agree(figures_of(directory / "four.run"), one));
  }
}

TEST_CASE("copies of the weights share out the teacher and find the learning rate",
          "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = [&](const char* output, const std::vector<std::string>& more) {
    auto all = with_all(uptrain_arguments(directory, output), more);
    all[7] = "1400";  // 70 steps: with trials
    return with_all(all, {"--accumulate", "4", "--teacher", golden("llama_bf16").string()});
  };
  REQUIRE(run_program(arguments("one", {})).exit_code == 0);
  run_four(arguments("four", {"--shard", "full", "--replicate", "2"}));
  const auto rate_of = [&](const char* output) {
    return Json::parse(
        bytes_of_file(directory / output / "config.json"))["regroup"]["uptrain"]["learning_rate"];
  };
  CHECK(rate_of("four") == rate_of("one"));
  std::vector<double> one = figures_of(directory / "one.run");
  std::vector<double> four = figures_of(directory / "four.run");
  REQUIRE(one.size() == four.size());
  one.resize(10 * 3);  // later steps differ more, at the rate found
  four.resize(10 * 3);
  CHECK(agree(four, one));
}

TEST_CASE("a run with copies of the weights goes on without them", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto whole = gentle_arguments(directory, "whole", {"--accumulate", "4"});
  REQUIRE(run_program(whole).exit_code == 0);
  const auto arguments = gentle_arguments(directory, "out", {});
  interrupt_four(with_all(arguments, {"--shard", "full", "--replicate", "2"}),
                 directory / "out.run", 33);
  run_two(with(arguments, "--resume"));
  CHECK(agree(figures_of(directory / "out.run"), figures_of(directory / "whole.run")));
}

TEST_CASE("a plan takes all weights on each rank if they fit", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const Json plan = plan_of(directory, {"--ranks", "8", "--ranks-per-machine", "4"});
  CHECK(plan["shard"] == "optimizer");
  CHECK(plan["shard_reason"] == "the first that fits");
  const Json& options = plan["shard_options"];
  REQUIRE(options.size() == 3);
  CHECK(options[1]["replicate"] == 2);  // a copy on each machine
  CHECK(options[2]["replicate"] == 1);
  CHECK(options[1]["memory_bytes"] > options[2]["memory_bytes"]);

  const Json given = plan_of(directory, {"--ranks", "8", "--shard", "full", "--replicate", "4"});
  CHECK(given["shard"] == "full");
  CHECK(given["replicate"] == 4);
  CHECK(given["shard_reason"] == "as given by --shard");
}

TEST_CASE("copies that the ranks cannot hold are refused", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  for (const char* copies : {"3", "4", "8"}) {
    const ProgramResult result = run_program(
        with_all(uptrain_arguments(directory, "out"),
                 {"--dry-run", "--ranks", "4", "--shard", "full", "--replicate", copies}));
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find("4 ranks cannot hold") != std::string::npos);
  }
  const ProgramResult alone = run_program(with_all(
      uptrain_arguments(directory, "out"), {"--dry-run", "--ranks", "4", "--replicate", "2"}));
  CHECK(alone.exit_code == 2);
  CHECK(alone.err.find("--shard") != std::string::npos);
}

}  // namespace regroup

// States and results of `regroup uptrain` as two processes: each writes its part.
#include <csignal>
#include <set>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/model/model_directory.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/distributed/two_ranks.h"
#include "tests/uptrain/run/uptrain_arguments.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// At this rate, differences in rounding stay below what agree() allows for all of the run.
std::vector<std::string> arguments_of(const TemporaryDirectory& directory, const char* output) {
  return with_all(uptrain_arguments(directory, output), {"--lr", "2e-4"});
}

// Trains with two ranks until one of them is told to stop.
ProgramResult stop_two(TwoRanks& ranks, const fs::path& run, std::ptrdiff_t steps) {
  wait_for_steps(run, steps);
  ranks.second.send(SIGINT);
  ProgramResult first = ranks.first.wait();
  CAPTURE(first.err);
  CHECK(first.exit_code == kExitStateSaved);
  CHECK(ranks.second.wait().exit_code == kExitStateSaved);
  return first;
}

// The directories of states, oldest first.
std::vector<fs::path> states_in(const fs::path& run) {
  std::set<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(run)) {
    if (entry.path().filename().string().starts_with("state-")) {
      found.insert(entry.path());
    }
  }
  return {found.begin(), found.end()};
}

std::multiset<std::string> tensors_in(const std::vector<fs::path>& parts) {
  std::multiset<std::string> names;
  for (const fs::path& part : parts) {
    const Checkpoint checkpoint = open_checkpoint(part);
    for (const TensorInfo& tensor : checkpoint.tensors()) {
      names.insert(tensor.name);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("SIGINT to one of two ranks stops both and one or two ranks can resume",
          "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  // At this rate, differences in rounding stay below what agree() allows for all of the run.
  const auto arguments_of = [&](const char* output) {
    return with_all(uptrain_arguments(directory, output), {"--lr", "2e-4"});
  };
  REQUIRE(run_program(with_all(arguments_of("whole"), {"--accumulate", "2"})).exit_code == 0);
  const auto arguments = arguments_of("stopped");
  const auto stop_two = [&](const std::vector<std::string>& with_options, std::ptrdiff_t steps) {
    TwoRanks ranks(with_options);
    wait_for_steps(directory / "stopped.run", steps);
    ranks.second.send(SIGINT);
    const ProgramResult first = ranks.first.wait();
    CAPTURE(first.err);
    CHECK(first.exit_code == kExitStateSaved);
    CHECK(ranks.second.wait().exit_code == kExitStateSaved);
  };
  stop_two(arguments, 33);
  {
    RunningProgram one(with(arguments, "--resume"));
    wait_for_steps(directory / "stopped.run", 70);
    one.send(SIGTERM);
    CHECK(one.wait().exit_code == kExitStateSaved);
  }
  stop_two(with(arguments, "--resume"), 110);
  CHECK(run_program(with(arguments, "--resume")).exit_code == 0);
  CHECK(agree(figures_of(directory / "stopped.run"), figures_of(directory / "whole.run")));
}

TEST_CASE("each of two ranks writes its part of a state", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const bool sharded = GENERATE(false, true);
  auto arguments = arguments_of(directory, "out");
  if (sharded) {
    arguments = with_all(arguments, {"--shard", "full"});
  }
  {
    TwoRanks ranks(arguments);
    stop_two(ranks, directory / "out.run", 20);
  }
  const fs::path state = states_in(directory / "out.run").back();
  const std::vector<fs::path> parts = {state / "part-1-of-2", state / "part-2-of-2"};
  const auto names = tensors_in(parts);
  CHECK(tensors_in({parts[0]}).size() < names.size());
  CHECK(tensors_in({parts[1]}).size() < names.size());
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());  // each once

  RunningProgram one(with(arguments_of(directory, "out"), "--resume"));
  wait_for_steps(directory / "out.run", 60);
  one.send(SIGINT);
  REQUIRE(one.wait().exit_code == kExitStateSaved);
  const fs::path whole = states_in(directory / "out.run").back() / "part-1-of-1";
  CHECK(tensors_in({whole}) == names);
}

TEST_CASE("a state with a damaged or missing part is not used by any rank", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = arguments_of(directory, "out");
  run_two(arguments_of(directory, "whole"));
  {
    TwoRanks ranks(arguments);
    stop_two(ranks, directory / "out.run", 50);
  }
  const std::vector<fs::path> states = states_in(directory / "out.run");
  REQUIRE(states.size() == 2);
  const bool damaged = GENERATE(true, false);
  const fs::path part = states.back() / "part-2-of-2";
  if (damaged) {
    std::string bytes = bytes_of_file(part / "model.safetensors");
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put_file(part / "model.safetensors", bytes);
  } else {
    fs::remove_all(part);
  }
  TwoRanks ranks = TwoRanks::verbose(with(arguments, "--resume"), with(arguments, "--resume"));
  const ProgramResult first = ranks.first.wait();
  CAPTURE(first.err);
  CHECK(first.exit_code == 0);
  CHECK(ranks.second.wait().exit_code == 0);
  CHECK((first.err.find("damaged: its checksum does not match") != std::string::npos) == damaged);
  CHECK(bytes_of_file(directory / "out/model.safetensors") ==
        bytes_of_file(directory / "whole/model.safetensors"));
}

TEST_CASE("if a rank does not see the output the first one writes everything", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  run_two(arguments_of(directory, "whole"));
  const auto here = arguments_of(directory, "out");
  const auto there = arguments_of(directory, "on-another-machine");
  {
    TwoRanks ranks = TwoRanks::verbose(here, there);
    const ProgramResult first = stop_two(ranks, directory / "out.run", 20);
    CHECK(first.err.find("not all ranks see the directory of the output") != std::string::npos);
  }
  CHECK(fs::exists(states_in(directory / "out.run").back() / "part-1-of-1"));
  {
    TwoRanks exchanged(with(there, "--resume=auto"), with(here, "--resume=auto"));
    const ProgramResult first = exchanged.first.wait();
    CHECK(first.exit_code == 2);
    CHECK(first.err.find("rank 1 sees an earlier run, rank 0 does not") != std::string::npos);
    CHECK(exchanged.second.wait().exit_code == 2);
  }
  TwoRanks ranks(with(here, "--resume=auto"), with(there, "--resume=auto"));
  const ProgramResult first = ranks.first.wait();
  CAPTURE(first.err);
  CHECK(first.exit_code == 0);
  CHECK(ranks.second.wait().exit_code == 0);
  TwoRanks again(with(here, "--resume=auto"), with(there, "--resume=auto"));
  CHECK(again.first.wait().exit_code == 0);  // both know that it is complete
  CHECK(again.second.wait().exit_code == 0);
  CHECK(bytes_of_file(directory / "out/model.safetensors") ==
        bytes_of_file(directory / "whole/model.safetensors"));
  CHECK_FALSE(fs::exists(directory / "on-another-machine"));
}

TEST_CASE("if one rank cannot write no state and no result is taken for complete",
          "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  const auto arguments = arguments_of(directory, "out");
  {
    TwoRanks ranks =
        TwoRanks::verbose(arguments, arguments,
                          {"bash", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "small-files"});
    const ProgramResult first = ranks.first.wait();
    CAPTURE(first.err);
    CHECK(first.exit_code == 4);
    CHECK(first.err.find("no state saved at step 20: rank 1: ") != std::string::npos);
    CHECK(first.err.find("the result cannot be written: rank 1: ") != std::string::npos);
    CHECK(ranks.second.wait().exit_code == 4);
  }
  CHECK_FALSE(fs::exists(directory / "out"));
  run_two(with(arguments, "--resume=auto"));  // there is no state
  CHECK(fs::exists(directory / "out"));
}

}  // namespace regroup

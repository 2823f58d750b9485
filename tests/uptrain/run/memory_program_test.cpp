// Training that needs more memory than there is, as a program.
#include <algorithm>
#include <iterator>

#include <catch2/catch_test_macros.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/uptrain/run/uptrain_arguments.h"

namespace regroup {
namespace {

// Enough for the program to start, and a little more.
const std::vector<std::string> kLittleMemory{"sh", "-c", R"(ulimit -v 4000000; exec "$0" "$@")"};

std::vector<std::string> with_value(std::vector<std::string> arguments, const std::string& option,
                                    const std::string& value) {
  *std::next(std::find(arguments.begin(), arguments.end(), option)) = value;
  return arguments;
}

}  // namespace

TEST_CASE("training that does not fit is refused with options that would before files are written",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const auto huge = with_value(
      with_value(uptrain_arguments(directory, "out"), "--batch", "1048576"), "--sequence", "1024");
  const auto before = tree_of(directory.path());
  const ProgramResult refused = run_program(huge);
  CAPTURE(refused.err);
  CHECK(refused.exit_code == kExitEnvironment);
  CHECK(refused.one_line_of_error());
  CHECK(refused.err.find("of memory") != std::string::npos);
  CHECK(refused.err.find("--batch ") != std::string::npos);
  CHECK(refused.err.find("--memory-check off") != std::string::npos);
  CHECK(tree_of(directory.path()) == before);

  const ProgramResult shown = run_program(with_all(huge, {"--dry-run", "--json"}));
  CHECK(shown.exit_code == 0);
  const Json plan = shown.json();
  CHECK(plan["fits"] == false);
  REQUIRE_FALSE(plan["leaner"].empty());
  CHECK(plan["leaner"][0]["memory_bytes"] <= plan["memory_available"]);
}

TEST_CASE("the memory mode is planned and refused where it has no effect", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto arguments = with_all(uptrain_arguments(directory, "out"), {"--dry-run"});
  const auto narrow = with_all(arguments, {"--dtype", "bf16"});
  const Json full = run_program(with_all(narrow, {"--json"})).json();
  CHECK(full["memory_mode"] == "full");
  CHECK(full["memory_reason"] == "the first that fits");
  REQUIRE(full["memory_modes"].size() == 2);
  CHECK(full["memory_modes"][1]["mode"] == "compact");
  const Json compact = run_program(with_all(narrow, {"--json", "--memory", "compact"})).json();
  CHECK(compact["memory_mode"] == "compact");
  CHECK(compact["memory_reason"] == "as given by --memory");
  CHECK(compact["memory_bytes"] == full["memory_modes"][1]["memory_bytes"]);
  CHECK(compact["memory_bytes"] < full["memory_bytes"]);
  CHECK(compact["recipe"] == full["recipe"]);
  const ProgramResult text = run_program(with_all(narrow, {"--memory", "compact"}));
  CHECK(text.out.find("mode compact, as given by --memory: full ") != std::string::npos);
  CHECK(text.out.find("gradients in bf16") != std::string::npos);
  const ProgramResult several =
      run_program(with_all(narrow, {"--memory", "compact", "--accumulate", "2"}));
  CHECK(several.out.find("summed in fp32") != std::string::npos);

  for (const auto& refused : {run_program(with_all(arguments, {"--memory", "compact"})),
                              run_program(with_all(arguments, {"--memory", "host"})),
                              run_program(with_all(arguments, {"--memory", "disk"}))}) {
    CAPTURE(refused.err);
    CHECK(refused.exit_code == kExitUsage);
    CHECK(refused.one_line_of_error());
  }
}

TEST_CASE("running out of memory ends with one line of advice", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto arguments =
      with_all(with_value(uptrain_arguments(directory, "out"), "--batch", "600000"), {"--quiet"});
  const ProgramResult refused = run_program(arguments, kLittleMemory);
  CAPTURE(refused.err);
  CHECK(refused.exit_code == kExitEnvironment);
  CHECK(refused.err.find("--memory-check off") != std::string::npos);

  const ProgramResult started =
      run_program(with_all(arguments, {"--memory-check", "off"}), kLittleMemory);
  CAPTURE(started.err);
  CHECK(started.exit_code == kExitEnvironment);
  CHECK(started.err.find("out of memory") != std::string::npos);
  CHECK(started.err.find("--batch") != std::string::npos);
  CHECK(started.err.find("c10") == std::string::npos);
  CHECK_FALSE(std::filesystem::exists(directory / "out"));
}

}  // namespace regroup

// The warnings of convert about a result: its quality, and runtimes that misread it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("converting without statistics warns and names the option that improves the result",
          "[cli]") {
  const TemporaryDirectory directory;
  const std::string source = golden("llama_mha").string();
  const std::string target = (directory / "lowrank").string();
  const auto convert = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"convert", source,   target,   "--kv-heads",
                                       "3",       "--pool", "lowrank"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  const ProgramResult result = convert({"--json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.err, ContainsSubstring("warning: the result may not be usable as it is: method "
                                           "lowrank used only the weights"));
  CHECK_THAT(result.err, ContainsSubstring("--text FILE") && ContainsSubstring("--calibration"));
  REQUIRE(!result.json()["warnings"].empty());
  CHECK_THAT(result.out, !ContainsSubstring("energy_kept"));
  CHECK_THAT(bytes_of_file(directory / "lowrank" / "config.json"),
             !ContainsSubstring("energy_kept"));
  CHECK(convert({"--measure", "--dry-run"}).exit_code == 2);
}

TEST_CASE("pooling by the mean warns that the result is not usable yet and a copy that it is one",
          "[cli]") {
  const TemporaryDirectory directory;
  const std::string source = golden("llama_mha").string();
  const auto warnings = [&](const char* name, const char* heads) {
    return run_program(
               {"convert", source, (directory / name).string(), "--kv-heads", heads, "--json"})
        .json()["warnings"];
  };
  REQUIRE(warnings("mean", "1").size() == 1);
  CHECK(warnings("copy", "6") ==
        Json::array({"no tensor changes: the source has 6 kv heads, and the result is a copy"}));
  CHECK(run_program({"convert", source, (directory / "out").string(), "--kv-heads", "6", "--dtype",
                     "bf16", "--json"})
            .json()["warnings"]
            .empty());
  const ProgramResult planned = run_program(
      {"convert", source, (directory / "mean").string(), "--positions", "alibi", "--dry-run"});
  CHECK_THAT(planned.err, ContainsSubstring("warning: the result is not usable before uptraining: "
                                            "ALiBi's slopes replace the positions") &&
                              ContainsSubstring("exists already: without --dry-run it is refused"));
}

TEST_CASE("convert warns of a plain mean in the words of the card and of inspect", "[cli]") {
  const TemporaryDirectory directory;
  const std::string result = (directory / "out").string();
  const std::string words =
      " is not usable as it is: method mean keeps little of what a trained model's heads computed";
  const ProgramResult converted =
      run_program({"convert", golden("llama_mha").string(), result, "--kv-heads", "1"});
  CHECK_THAT(converted.err,
             ContainsSubstring("warning: the result" + words + "; --text FILE, with text"));
  CHECK_THAT(run_program({"inspect", result}).err,
             ContainsSubstring("warning: this model" + words + " (regroup convert --text"));
  CHECK_THAT(bytes_of_file(directory / "out/README.md"),
             ContainsSubstring("**Warning:** this model" + words + " (regroup convert"));
}

TEST_CASE("the warning of heads that nothing has adapted follows them into other forms", "[cli]") {
  const TemporaryDirectory directory;
  const std::string mean = (directory / "mean").string();
  REQUIRE(
      run_program({"convert", golden("llama_mha").string(), mean, "--kv-heads", "1"}).exit_code ==
      0);
  const auto warns = [&](const std::vector<std::string>& command, const std::string& model) {
    CAPTURE(command);
    const ProgramResult written = run_program(command);
    CHECK(written.exit_code == 0);
    CHECK_THAT(written.err, ContainsSubstring("not usable as it is"));
    CHECK_THAT(run_program({"inspect", model}).err, ContainsSubstring("not usable as it is"));
  };
  const std::string half = (directory / "half").string();
  const std::string gguf = (directory / "model.gguf").string();
  const std::string again = (directory / "again.gguf").string();
  const std::string more = (directory / "more").string();
  warns({"convert", mean, half, "--dtype", "fp16"}, half);
  warns({"convert", half, gguf, "--to", "gguf"}, gguf);
  warns({"convert", gguf, again, "--dtype", "bf16"}, again);
  warns({"expand", mean, more, "--kv-heads", "6"}, more);
}

TEST_CASE("convert warns of runtimes that compute something else from the result", "[cli]") {
  const TemporaryDirectory directory;
  const ProgramResult result = run_program(
      {"convert", golden("falcon_rw").string(), (directory / "out").string(), "--kv-heads", "2"});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.err, ContainsSubstring("warning: CTranslate2 computes something else"));
}

}  // namespace
}  // namespace regroup

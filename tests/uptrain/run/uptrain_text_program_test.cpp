// `regroup uptrain --text` as a program, and what it says of a run that made a model worse.
#include <csignal>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/model_and_text.h"
#include "tests/uptrain/run/uptrain_arguments.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

struct TextRun : ModelAndText {
  std::vector<std::string> arguments(const char* output) const {
    return {"uptrain",      model,
            "--text",       text,
            "--tokenizer",  "bytes",
            "--steps",      "200",
            "--batch",      "2",
            "--context",    "32",
            "-o",           (directory / output).string(),
            "--save-every", "20"};
  }
};

}  // namespace

TEST_CASE("uptrain --text keeps the tokens in the run's directory, and resumes with them",
          "[uptrain]") {
  const TextRun files;
  REQUIRE(run_program(files.arguments("whole")).exit_code == 0);
  CHECK(fs::exists(files.directory / "whole.run/text.bin"));
  const auto arguments = files.arguments("stopped");
  RunningProgram program(arguments);
  wait_for_steps(files.directory / "stopped.run", 33);
  program.send(SIGTERM);
  REQUIRE(program.wait().exit_code == kExitStateSaved);
  const std::string text = bytes_of_file(files.text);
  put_file(files.text, text + " and more");
  const auto before = tree_of(files.directory / "stopped.run");
  const ProgramResult refused = run_program(with(arguments, "--resume"));
  CHECK(refused.exit_code == kExitUsage);
  CHECK_THAT(refused.err, ContainsSubstring("was begun with another text"));
  CHECK((tree_of(files.directory / "stopped.run") == before));
  put_file(files.text, text);
  REQUIRE(run_program(with(arguments, "--resume")).exit_code == 0);
  CHECK((tree_of(files.directory / "stopped") == tree_of(files.directory / "whole")));
  for (const auto& entry : fs::directory_iterator(files.directory.path())) {
    CHECK_THAT(entry.path().filename().string(), !ContainsSubstring("partial"));
  }
}

TEST_CASE("a text that is too short is refused by its own name", "[uptrain]") {
  const TextRun files;
  put_file(files.text, "ab");
  const ProgramResult refused = run_program(files.arguments("out"));
  CHECK(refused.exit_code == kExitBadInput);
  CHECK_THAT(refused.err,
             ContainsSubstring(files.text + ": ") && ContainsSubstring("a smaller --context"));
  CHECK_FALSE(fs::exists(files.directory / "out.run"));
}

TEST_CASE("uptrain needs text or tokens, and not both", "[uptrain]") {
  const TextRun files;
  const auto before = tree_of(files.directory.path());
  const auto refused = [&](const std::vector<std::string>& arguments, const char* reason,
                           int exit_code = kExitUsage) {
    const ProgramResult result = run_program(arguments);
    CAPTURE(result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(result.one_line_of_error());
    CHECK_THAT(result.err, ContainsSubstring(reason));
    CHECK((tree_of(files.directory.path()) == before));
  };
  const std::string output = (files.directory / "out").string();
  refused({"uptrain", files.model, "--steps", "2", "-o", output}, "--data or --text");
  refused(with_all(files.arguments("out"), {"--data", files.text}), "exclude");
  refused({"uptrain", files.model, "--data", files.text, "--tokenizer", "bytes", "--steps", "2",
           "-o", output},
          "--tokenizer");
  refused({"uptrain", files.model, "--text", files.text, "--steps", "2", "-o", output}, "tokenizer",
          kExitBadInput);
}

TEST_CASE("a dry run with --text leaves nothing", "[uptrain]") {
  const TextRun files;
  const auto before = tree_of(files.directory.path());
  const ProgramResult shown = run_program(with(files.arguments("out"), "--dry-run"));
  CHECK(shown.exit_code == 0);
  CHECK((tree_of(files.directory.path()) == before));
}

TEST_CASE("a run whose held-out loss rises ends with a warning", "[uptrain]") {
  const TextRun files;
  const auto tokens_of = [&](const char* name, const std::string& text) {
    put_file(files.directory / name, text);
    const std::string tokens = (files.directory / name).string() + ".npy";
    REQUIRE(run_program({"tokenize", (files.directory / name).string(), "--tokenizer", "bytes",
                         "-o", tokens})
                .exit_code == 0);
    return tokens;
  };
  const auto trained = [&](const char* output, const std::string& held_out) {
    return run_program(
        with_all(files.arguments(output), {"--eval-data", held_out, "--lr", "1e-2", "--json"}));
  };
  const ProgramResult better = trained("better", tokens_of("same", bytes_of_file(files.text)));
  CHECK(better.json()["warnings"].empty());
  const ProgramResult worse = trained("worse", tokens_of("other", std::string(2000, 'z')));
  REQUIRE(worse.exit_code == 0);
  REQUIRE(worse.json()["after"]["loss"] > worse.json()["before"]["loss"]);
  CHECK_THAT(worse.err, ContainsSubstring("warning: the held-out loss rose"));
  CHECK(worse.json()["warnings"].size() == 1);
}

}  // namespace regroup

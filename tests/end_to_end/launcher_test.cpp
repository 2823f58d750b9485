// The small program that starts quickly and the whole program that it starts.
#include <cstdlib>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("common options and config files work for every command", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama").string();
  put_file(directory / "run.toml", "[inspect]\njson = true\n\n[convert]\npool = \"first\"\n");
  const std::string config = (directory / "run.toml").string();
  CHECK(run_program({"--config", config, "inspect", model}).json()["family"] == "llama");
  CHECK(run_program({"inspect", model, "--config=" + config}).json()["family"] == "llama");
  CHECK(run_program({"-q", "inspect", model}).err.empty());
  CHECK_THAT(run_program({"--help"}).out,
             ContainsSubstring("inspect") && ContainsSubstring("convert"));
  CHECK(run_program({"--version"}).out.starts_with("regroup "));
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{}, {"inspekt", model}, {"inspect"}, {"plan", model, "--wrong"}}) {
    const ProgramResult result = run_program(wrong);
    CHECK(result.exit_code == 2);
    CHECK(result.one_line_of_error());
  }
}

TEST_CASE(
    "inspect and mean pooling work without LibTorch and other commands report what is missing",
    "[end_to_end]") {
  const fs::path program(REGROUP_PROGRAM);
  if (!fs::exists(program.parent_path() / "regroup-compute")) {
    SKIP("built without LibTorch: there is one program for all");
  }
  const TemporaryDirectory directory;
  fs::copy_file(program, directory / "regroup");
  const auto run = [&](const std::string& arguments) {
    const std::string command = "'" + (directory / "regroup").string() + "' " + arguments + " > '" +
                                (directory / "out").string() + "' 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  CHECK(run("inspect '" + golden("llama").string() + "'") == 0);
  const std::string model = "'" + golden("llama").string() + "'";
  const std::string result = "'" + (directory / "result").string() + "'";
  const std::string other = "'" + (directory / "other").string() + "'";
  CHECK(run("convert " + model + " " + result + " --kv-heads 2") == 0);
  CHECK(run("verify " + model + " " + result) == 0);
  CHECK(run("expand " + result + " " + other + " --kv-heads 6") == 0);
  fs::remove_all(directory / "other");
  for (const std::string& command :
       {std::string("eval"), "convert " + model + " " + other + " --kv-heads 2 --pool lowrank",
        "convert " + model + " " + other + " --kv-heads 2 --to gguf",
        "verify " + model + " " + result + " --logits"}) {
    CAPTURE(command);
    CHECK(run(command) == 4);
    CHECK_THAT(bytes_of_file(directory / "out"),
               ContainsSubstring("regroup-compute: No such file"));
    CHECK_FALSE(fs::exists(directory / "other"));
  }
  put_file(directory / "regroup-compute", "#!/bin/sh\necho $* $LD_LIBRARY_PATH\n");
  fs::permissions(directory / "regroup-compute", fs::perms::owner_all);
  ::setenv("LibTorch_ROOT", "/some/torch", 1);
  CHECK(run("eval") == 0);
  CHECK(bytes_of_file(directory / "out").starts_with("eval /some/torch/lib"));
  CHECK(run("convert " + model + " there --kv-heads 2 --measure") == 0);
  CHECK_THAT(bytes_of_file(directory / "out"), ContainsSubstring("there --kv-heads 2 --measure"));
  ::unsetenv("LibTorch_ROOT");
}

}  // namespace
}  // namespace regroup

// The program that starts at once and the one it hands over to.
#include <cstdlib>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/file_tree.h"
#include "tests/program.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("common options and config files hold for every command", "[end_to_end]") {
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

TEST_CASE("what only looks needs no LibTorch, all else says where it was looked for",
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
  CHECK(run("convert a b --kv-heads 1") == 4);
  CHECK_THAT(bytes_of_file(directory / "out"), ContainsSubstring("regroup-compute: No such file"));
  put_file(directory / "regroup-compute", "#!/bin/sh\necho $1 $LD_LIBRARY_PATH\n");
  fs::permissions(directory / "regroup-compute", fs::perms::owner_all);
  ::setenv("LibTorch_ROOT", "/some/torch", 1);
  CHECK(run("eval") == 0);
  ::unsetenv("LibTorch_ROOT");
  CHECK(bytes_of_file(directory / "out").starts_with("eval /some/torch/lib"));
}

}  // namespace
}  // namespace regroup

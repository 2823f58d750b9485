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
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"-q"},
                                                {"inspekt", model},
                                                {"inspect"},
                                                {"plan", model, "--wrong"}}) {
    const ProgramResult result = run_program(wrong);
    CHECK(result.exit_code == 2);
    CHECK(result.one_line_of_error());
  }
}

// The program alone in a directory, without the one that computes.
class Lone {
 public:
  Lone() {
    const fs::path program(REGROUP_PROGRAM);
    if (!fs::exists(program.parent_path() / "regroup-compute")) {
      SKIP("built without LibTorch: there is one program for all");
    }
    fs::copy_file(program, directory_ / "regroup");
  }

  fs::path path(const char* name) const { return directory_ / name; }
  std::string quoted(const char* name) const { return "'" + path(name).string() + "'"; }
  // Returns the exit code. `output()` is what it printed.
  int run(const std::string& arguments) const {
    const std::string command =
        quoted("regroup") + " " + arguments + " > " + quoted("out") + " 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  }
  std::string output() const { return bytes_of_file(path("out")); }

 private:
  const TemporaryDirectory directory_;
};

const std::string& llama() {
  static const std::string quoted = "'" + golden("llama").string() + "'";
  return quoted;
}

TEST_CASE("inspect and mean pooling work without LibTorch", "[end_to_end]") {
  const Lone program;
  const std::string result = program.quoted("result");
  CHECK(program.run("inspect " + llama()) == 0);
  CHECK(program.run("convert " + llama() + " " + result + " --kv-heads 2") == 0);
  CHECK(program.run("verify " + llama() + " " + result) == 0);
  CHECK(program.run("expand " + result + " " + program.quoted("other") + " --kv-heads 6") == 0);
}

TEST_CASE("commands that compute report that the computing program is missing", "[end_to_end]") {
  const Lone program;
  const std::string result = program.quoted("result"), other = program.quoted("other");
  REQUIRE(program.run("convert " + llama() + " " + result + " --kv-heads 2") == 0);
  for (const std::string& command :
       {std::string("eval"), "convert " + llama() + " " + other + " --kv-heads 2 --pool lowrank",
        "convert " + llama() + " " + other + " --kv-heads 2 --to gguf",
        "verify " + llama() + " " + result + " --logits"}) {
    CAPTURE(command);
    CHECK(program.run(command) == 4);
    CHECK_THAT(program.output(), ContainsSubstring("regroup-compute: No such file"));
    CHECK_FALSE(fs::exists(program.path("other")));
  }
}

TEST_CASE("a config file alone does not start the computing program", "[end_to_end]") {
  const Lone program;
  put_file(program.path("run.toml"), "[inspect]\njson = true\n\n[uptrain]\nlr = 1e-4\n");
  put_file(program.path("logits.toml"), "[verify]\nlogits = true\n");
  const std::string config = "--config " + program.quoted("run.toml");
  CHECK(program.run(config + " inspect " + llama()) == 0);
  CHECK(Json::parse(program.output())["family"] == "llama");
  CHECK(program.run("inspect " + llama() + " --config=" + program.quoted("run.toml")) == 0);
  const std::string verify = "verify " + llama() + " " + llama();
  for (const std::string& computing : {config + " uptrain", verify + " --logits",
                                       verify + " --config " + program.quoted("logits.toml")}) {
    CAPTURE(computing);
    CHECK(program.run(computing) == 4);
    CHECK_THAT(program.output(), ContainsSubstring("regroup-compute: No such file"));
  }
}

TEST_CASE("the computing program gets all arguments and LibTorch's libraries", "[end_to_end]") {
  const Lone program;
  put_file(program.path("regroup-compute"),
           "#!/bin/sh\necho $* $LD_LIBRARY_PATH, $GOMP_SPINCOUNT\n");
  fs::permissions(program.path("regroup-compute"), fs::perms::owner_all);
  ::setenv("LibTorch_ROOT", "/some/torch", 1);
  ::unsetenv("OMP_WAIT_POLICY");
  ::unsetenv("GOMP_SPINCOUNT");
  CHECK(program.run("eval") == 0);
  CHECK(program.output().starts_with("eval /some/torch/lib"));
  CHECK(program.run("convert " + llama() + " there --kv-heads 2 --measure") == 0);
  CHECK_THAT(program.output(), ContainsSubstring("there --kv-heads 2 --measure"));
  CHECK_THAT(program.output(), ContainsSubstring(", 3000"));
  ::unsetenv("LibTorch_ROOT");
}

}  // namespace
}  // namespace regroup

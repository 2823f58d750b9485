// Shell completions and the manual page, checked by shells and man.
#include <cstdlib>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

// The completions that bash offers after these words.
std::string bash_offers(const std::string& words) {
  const TemporaryDirectory directory;
  put_file(directory / "completions", run_program({"completions", "bash"}).out);
  put_file(directory / "ask", ". '" + (directory / "completions").string() + "'\nCOMP_WORDS=(" +
                                  words + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_regroup\n" +
                                  "echo ${COMPREPLY[@]} > '" + (directory / "out").string() + "'");
  CHECK(std::system(("bash '" + (directory / "ask").string() + "'").c_str()) == 0);
  return bytes_of_file(directory / "out");
}

bool installed(const std::string& program) {
  return std::system(("command -v " + program + " > /dev/null").c_str()) == 0;
}

TEST_CASE("bash completes commands and options and values", "[end_to_end]") {
  if (!installed("bash")) {
    SKIP("bash is not installed");
  }
  CHECK(bash_offers("regroup ins") == "inspect\n");
  CHECK(bash_offers("regroup inspect --lay") == "--layout --layers\n");
  CHECK(bash_offers("regroup -q convert --pool l") == "lowrank\n");
  CHECK(bash_offers("regroup inspect --sort ''") == "shard name bytes\n");
  CHECK(bash_offers("regroup completions z") == "zsh\n");
  CHECK(bash_offers("regroup help ins") == "inspect\n");
  if (program_computes()) {
    CHECK(bash_offers("regroup bench d") == "decode\n");
    CHECK(bash_offers("regroup bench decode --prefill") == "--prefill-chunk\n");
  }
  CHECK(bash_offers("regroup inspect tests/gol") == "tests/golden\n");
}

TEST_CASE("fish completes commands and options and values and files", "[end_to_end]") {
  if (!installed("fish")) {
    SKIP("fish is not installed");
  }
  const TemporaryDirectory directory;
  put_file(directory / "regroup.fish", run_program({"completions", "fish"}).out);
  const auto offers = [&](const std::string& words) {
    const std::string command = "HOME='" + directory.path().string() +
                                "' fish --no-config -c \"source '" +
                                (directory / "regroup.fish").string() + "'; complete -C '" + words +
                                "'\" | cut -f 1 > '" + (directory / "out").string() + "'";
    CHECK(std::system(command.c_str()) == 0);
    return bytes_of_file(directory / "out");
  };
  CHECK(offers("regroup ins") == "inspect\n");
  CHECK(offers("regroup inspect --lay") == "--layers\n--layout\n");
  CHECK(offers("regroup convert --pool l") == "lowrank\n");
  CHECK(offers("regroup completions z") == "zsh\n");
  if (program_computes()) {
    CHECK(offers("regroup bench d") == "decode\n");
    CHECK(offers("regroup bench decode --prefill") == "--prefill-chunk\n");
  }
  CHECK(offers("regroup inspect tests/gol") == "tests/golden/\n");
}

// Completion needs an interactive shell on a pseudo-terminal. There `regroup` prints its arguments.
TEST_CASE("zsh completes commands and options and values", "[end_to_end]") {
  if (!installed("zsh")) {
    SKIP("zsh is not installed");
  }
  const TemporaryDirectory directory;
  put_file(directory / "_regroup", run_program({"completions", "zsh"}).out);
  put_file(directory / "ask", R"zsh(zmodload zsh/zpty
zpty shell 'TERM=dumb zsh -f -i'
zpty -w shell "fpath=('$1' \$fpath)"
zpty -w shell 'autoload -U compinit; compinit -u -D'
zpty -w shell 'zstyle ":completion:*" insert-tab false; regroup() { print called: $* :end }'
zpty -w -n shell $'regroup ins\t\n'
zpty -w -n shell $'regroup inspect --ten\t\n'
zpty -w -n shell $'regroup convert --pool low\t\n'
zpty -w -n shell $'regroup completions fi\t\n'
zpty -w -n shell $'regroup bench decode --prefill\t 8\n'
zpty -w -n shell $'exit\n'
while zpty -r shell line; do print -r -- "$line"; done
)zsh");
  const std::string folder = directory.path().string();
  const std::string command = fmt::format("timeout 60 zsh -f '{0}/ask' '{0}' > '{0}/out'", folder);
  CHECK(std::system(command.c_str()) == 0);
  for (const char* called :
       {"called: inspect :end", "called: inspect --tensors :end",
        "called: convert --pool lowrank :end", "called: completions fish :end"}) {
    CHECK_THAT(bytes_of_file(directory / "out"), ContainsSubstring(called));
  }
  if (program_computes()) {
    CHECK_THAT(bytes_of_file(directory / "out"),
               ContainsSubstring("called: bench decode --prefill-chunk 8 :end"));
  }
}

TEST_CASE("the script for every shell has every command and option", "[end_to_end]") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProgramResult result = run_program({"completions", shell});
    CHECK(result.exit_code == 0);
    for (const char* word : {"inspect", "plan", "diff", "verify", "convert", "vram", "lowrank"}) {
      CHECK_THAT(result.out, ContainsSubstring(word));
    }
    if (installed(shell)) {
      const TemporaryDirectory directory;
      put_file(directory / "script", result.out);
      const std::string command =
          std::string(shell) + " -n '" + (directory / "script").string() + "'";
      CHECK(std::system(command.c_str()) == 0);
    }
  }
  CHECK(run_program({"completions", "tcsh"}).exit_code == 2);
}

TEST_CASE("the manual page has every command and roff accepts it without warnings",
          "[end_to_end]") {
  const std::string page = run_program({"manual"}).out;
  CHECK(page.starts_with(".TH REGROUP 1 "));
  for (const char* word : {".SS inspect", ".SS plan", ".SS convert", "\\-\\-kv\\-heads",
                           ".SH EXIT STATUS", "Unless given: contiguous."}) {
    CHECK_THAT(page, ContainsSubstring(word));
  }
  if (!installed("groff")) {
    SKIP("groff is not installed");
  }
  const TemporaryDirectory directory;
  put_file(directory / "page", page);
  const std::string errors = (directory / "errors").string();
  CHECK(
      std::system(("groff -man -ww -z '" + (directory / "page").string() + "' 2> '" + errors + "'")
                      .c_str()) == 0);
  CHECK(bytes_of_file(errors).empty());
}

}  // namespace
}  // namespace regroup

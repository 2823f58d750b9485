// The file of --config.
#include "cli/shell/config_file.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include "cli/shell/quantity.h"
#include "tests/cli/commands/whole_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

// The reason why `inspect` with this file is refused. Empty if it is accepted.
std::string refusal_of_file(const std::string& text) {
  const TemporaryDirectory directory;
  put_file(directory / "run.toml", text);
  return refusal_of_words({"--config", (directory / "run.toml").string(), "inspect", "model"});
}

TEST_CASE("a config file sets options of commands and of the program", "[cli]") {
  CHECK(refusal_of_file("quiet = true\n[inspect]\njson = true\ncontext = 8192\nbatch = \"2k\"\n"
                        "filter = 'a*'\ntensors = true\nsort = \"name\"\n") == "");
  CHECK(refusal_of_file("[plan]\ncontext = [512, \"1k\"]\nvram = \"24GiB\"\n") == "");
  CHECK(refusal_of_file("plan.context = \"512,1k\"\n[convert]\nkv-heads = [4, 2]\n") == "");
  CHECK(refusal_of_file("[convert]\nmax-shard-size = \"2GB\"\npool = \"lowrank\"\n") == "");
  CHECK(refusal_of_file("[tokenize]\nbos = false\nno-eos = true\ninputs = [\"a\", \"b\"]\n") == "");
}

TEST_CASE("a flag with values accepts true and false and its values in a config file", "[cli]") {
  const CommandFacts program = WholeProgram().facts();
  if (std::none_of(program.commands.begin(), program.commands.end(),
                   [](const CommandFacts& command) { return command.name == "uptrain"; })) {
    SKIP("built without LibTorch: no command has such a flag");
  }
  for (const char* value : {"true", "false", "\"yes\"", "\"auto\""}) {
    CHECK(refusal_of_file(fmt::format("[uptrain]\nresume = {}\n", value)) == "");
  }
  CHECK_THAT(refusal_of_file("[uptrain]\nresume = \"maybe\"\n"), ContainsSubstring("run.toml:2: "));
}

// Checks that the text is refused at a line, in one printable line that contains `why`.
void refused(const std::string& text, int line, const std::string& why) {
  CAPTURE(text);
  const std::string refusal = refusal_of_file(text);
  CHECK_THAT(refusal, ContainsSubstring(fmt::format("run.toml:{}: ", line)));
  CHECK_THAT(refusal, ContainsSubstring(why));
  CHECK(refusal.find('\n') == std::string::npos);
  CHECK(refusal.find('\x1b') == std::string::npos);
}

TEST_CASE("unknown names in a config file are refused with file and line", "[cli]") {
  refused("[inspect]\njson = true\ncontxt = 5\n", 3, "did you mean \"context\"?");
  refused("\n[inspcet]\njson = true\n", 2, "did you mean \"inspect\"?");
  refused("wrong = 1\n", 1, "\"wrong\" is not an option");
  refused("[inspect]\n\"a\\u001bb\" = 1\n", 2, "\\x1b");
  refused("config = \"other.toml\"\n", 1, "not an option");
  refused("[inspect.more]\njson = true\n", 1, "not a command");
}

TEST_CASE("a config file in another language is told that TOML is needed", "[cli]") {
  const TemporaryDirectory directory;
  for (const auto& [name, text] :
       {std::pair{"run.yaml", "uptrain:\n  lr: 2e-4\n"}, std::pair{"run.json", "{\"lr\": 2e-4}"}}) {
    put_file(directory / name, text);
    CHECK_THAT(refusal_of_words({"--config", (directory / name).string(), "inspect", "model"}),
               ContainsSubstring(name) && ContainsSubstring("TOML"));
  }
  CHECK_THAT(refusal_of_file("[convert]\nnum_key_value_heads = 4\n"),
             ContainsSubstring("did you mean \"kv-heads\"?"));
}

TEST_CASE("config values of the wrong type are refused with file and line", "[cli]") {
  refused("[inspect]\nfilter = 5\n", 2, "a string is needed");
  refused("[inspect]\nfilter = true\n", 2, "a string is needed");
  refused("[inspect]\nfilter = \"\"\n", 2, "empty");
  refused("[inspect]\nfilter = [\"a\", \"b\"]\n", 2, "one value");
  refused("[inspect]\njson = \"yes\"\n", 2, "true or false");
  refused("[inspect]\njson = 1\n", 2, "true or false");
  refused("[inspect]\nsort = \"size\"\n", 2, "size");
  refused("[inspect]\ncontext = 4.5\n", 2, "\"4.5\"");
  refused("[inspect]\ncontext = 8.0\n", 2, "\"8.0\"");
  refused("[inspect]\ncontext = true\n", 2, "a number is needed");
  refused("[inspect]\ncontext = 2020-01-01\n", 2, "date");
  refused("[inspect]\ncontext = []\n", 2, "list");
  refused("[plan]\nvram = 24\n", 2, "a size such as");
  refused("[inspect]\nfilter = \"\\u001b[31m\"\n", 2, "unprintable");
}

TEST_CASE("invalid TOML is refused with file and line", "[cli]") {
  refused("[inspect]\nfilter = \"open\ntensors = true\n", 2, "string");
  refused("[inspect]\nfilter = unquoted\n", 2, "");
  refused("[inspect]\ncontext = 1\ncontext = 2\n", 3, "");
  refused("[inspect]\n\n[inspect]\n", 3, "");
  for (const char* nameless : {"[\n", "[&]\n", "[[\n", "a.\n"}) {
    CHECK_THAT(refusal_of_file(nameless), ContainsSubstring("run.toml:"));
  }
}

TEST_CASE("config text that toml++ cannot read is refused before it", "[cli]") {
  refused("[inspect]\nfilter = \"\x1b[31m\"\n", 2, "control");
  refused("[inspect]\n\u01db\u00c4 = 1\n", 2, "non-ASCII");
  refused("\u01db\u00c4", 1, "non-ASCII");
  refused(std::string("[\0&a", 4), 1, "a control character");
  refused("[inspect]\nfilter = \"a\\\"b\" \u01db\n", 2, "non-ASCII");
  refused("[inspect]\nfilter = '\\' \u01db\n", 2, "non-ASCII");
  refused("[inspect]\nfilter = \"\"\"a\"\"\"\n", 2, "multi-line");
  refused("[inspect]\nfilter = '\u01db'\n", 2, "double quotes");
  refused("[inspect]\nfilter = \"\\\u01db\"\n", 2, "backslash");
  refused("[inspect]\nfilter = \"\xc3\"\n", 2, "UTF-8");
  // toml++ reads these without a string. Fuzzing found the first.
  refused("quiet = 1979-05-b\"1\\@@\u03dd9@\n", 1, "");
  refused("quiet = 19[\"\u03dd\n", 1, "");
  CHECK(refusal_of_file("# \u01db\n[inspect]\ntensors = true\nfilter = \"\u01db\" # \u00c4\n") ==
        "");
}

TEST_CASE("strings in a config file are UTF-8", "[cli]") {
  const TemporaryDirectory directory;
  put_file(directory / "run.toml",
           "text = \"\u00e9 \u01db \U0001f600 \\u00e9 \\\\ # \"  # \u00e9\n");
  CLI::App program;
  std::string text;
  program.add_option("--text", text);
  apply_config_file(program, directory / "run.toml");
  CHECK(text == "\u00e9 \u01db \U0001f600 \u00e9 \\ # ");
}

TEST_CASE("numeric options refuse junk in a config file", "[cli]") {
  const CommandFacts program = WholeProgram().facts();
  const std::set<std::string> numeric{kCount, kCounts, kNumber, kSize, kSizeOrShare, kRate};
  for (const CommandFacts& command : whole_commands(program)) {
    for (const OptionFacts& option : command.options) {
      if (!numeric.contains(option.value)) {
        continue;
      }
      std::string table = command.name;
      std::replace(table.begin(), table.end(), ' ', '.');
      for (const char* value : {"-1", "99999999999999999999", "9223372036854775807", "1e400", "nan",
                                "inf", "-inf", "\"12abc\"", "\"\"", "true", "{}", "1979-05-27"}) {
        if (option.names.front().ends_with("seed") && std::string(value) == "9223372036854775807") {
          continue;  // a valid seed
        }
        CAPTURE(table, option.names.front(), value);
        CHECK_THAT(refusal_of_file(fmt::format("[{}]\n{} = {}\n", table,
                                               option.names.front().substr(2), value)),
                   ContainsSubstring("run.toml:2: "));
      }
    }
  }
}

TEST_CASE("the command line takes precedence over a config file", "[cli]") {
  const TemporaryDirectory directory;
  put_file(directory / "run.toml", "[inspect]\nsort = \"size\"\n");
  const std::string file = (directory / "run.toml").string();
  CHECK(refusal_of_words({"--config", file, "inspect", "m", "--tensors", "--sort", "name"}) == "");
}

TEST_CASE("a config file is a small regular file with limited nesting", "[cli]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& path) {
    return refusal_of_words({"--config", path, "inspect", "m"});
  };
  CHECK_THAT(refusal((directory / "none").string()), ContainsSubstring("none"));
  CHECK_THAT(refusal(directory.path().string()), ContainsSubstring("not a regular file"));
  CHECK_THAT(refusal("/dev/zero"), ContainsSubstring("not a regular file"));
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);
  CHECK_THAT(refusal((directory / "fifo").string()), ContainsSubstring("not a regular file"));
  put_file(directory / "large.toml", std::string(20000, '\n'));
  CHECK_THAT(refusal((directory / "large.toml").string()), ContainsSubstring("16384 allowed"));
  for (const char* repeated : {"a.", "[", "{a=", "'a'."}) {
    std::string text = repeated[0] == 'a' || repeated[0] == '\'' ? "" : "a = ";
    while (text.size() < 16000) {
      text += repeated;
    }
    CAPTURE(repeated);
    CHECK_THAT(refusal_of_file(text + "a = 1\n"), ContainsSubstring("run.toml:1: "));
  }
}

}  // namespace
}  // namespace regroup

// Output on a terminal: colours, and lines no wider than the terminal.
#include <algorithm>
#include <sstream>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

// Characters of the widest line without colour sequences.
std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t width = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\x1b') {
        i = line.find_first_of("mK", i);
      } else {
        width += line[i] == '\r' ? 0 : 1;
      }
    }
    widest = std::max(widest, width);
  }
  return widest;
}

// Tables, and parts of tables that were split.
int rules_in(const std::string& text) {
  int rules = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    rules += line.starts_with("--") ? 1 : 0;
  }
  return rules;
}

TEST_CASE("tables fit the terminal and are not shortened if there is room", "[end_to_end]") {
  const std::string model = golden("bloom_12").string();
  const std::vector<std::string> command{"inspect", model, "--tensors", "--stats"};
  const ProgramResult narrow = run_on_terminal(command, 80);
  CHECK(narrow.exit_code == 0);
  const auto after_summary = [](const std::string& text) {
    return text.substr(text.find("tensor  "));
  };
  const std::string tables = after_summary(narrow.out);
  CHECK(widest_line(tables) <= 80);
  // Shortened, but not where the names differ.
  for (const char* layer : {".h.0.self", ".h.1.self"}) {
    CHECK_THAT(tables, ContainsSubstring(layer) && ContainsSubstring("~."));
  }
  const ProgramResult wide = run_on_terminal(command, 200);
  CHECK_THAT(wide.out, ContainsSubstring("transformer.h.0.self_attention.query_key_value.weight"));
}

TEST_CASE("tables in pipes and files have whole rows", "[end_to_end]") {
  const std::string model = golden("bloom_12").string();
  const std::vector<std::vector<std::string>> commands{
      {"inspect", model, "--tensors", "--stats", "--layers", "--quiet"},
      {"plan", model, "--vram", "1MiB", "--bandwidth", "1GB/s", "--batch", "4"},
      {"convert", model, "nowhere", "--kv-heads", "4", "--dry-run"},
      {"inspect", golden("t5").string(), "--layers"}};
  for (const auto& command : commands) {
    CAPTURE(command.front());
    const std::string piped = run_program(command).out;
    CHECK(piped.find('~') == std::string::npos);
    CHECK(widest_line(run_on_terminal(command, 60).out) <= 60);
    CHECK(rules_in(piped) <= rules_in(run_on_terminal(command, 60).out));
  }
  CHECK(rules_in(run_program(commands.front()).out) == 3);  // none is split
}

TEST_CASE("lines of facts are wrapped on a terminal only", "[end_to_end]") {
  const std::vector<std::string> command{"inspect", golden("t5").string(), "--context", "123456"};
  const std::string narrow = run_on_terminal(command, 60).out;
  CHECK(widest_line(narrow.substr(narrow.find("KV cache"))) <= 60);
  const std::string whole = run_program(command).out;
  const std::string cache = whole.substr(whole.find("KV cache"));
  CHECK(cache.substr(0, cache.find('\n')).size() > 60);
}

TEST_CASE("notes, warnings and errors are wrapped on a terminal only", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::vector<std::string> command{
      "convert",  golden("llama_mha").string(), (directory / "out").string(), "--kv-heads", "1",
      "--dry-run"};
  const ProgramResult narrow = run_on_terminal(command, 60);
  const std::string text = narrow.out + narrow.err;
  REQUIRE(text.find("warning: the result") != text.npos);
  CHECK(widest_line(text.substr(text.find("warning: the result"))) <= 60);
  CHECK(widest_line(run_program(command).err) > 80);

  const std::vector<std::string> wrong{"convert", golden("llama_mha").string(), "out", "--device",
                                       "cpu"};
  const ProgramResult refused = run_on_terminal(wrong, 60);
  CHECK(widest_line(refused.out + refused.err) <= 60);
  CHECK(run_program(wrong).one_line_of_error());
}

TEST_CASE("shortened file names keep the numbers of their shards", "[end_to_end]") {
  const std::string text =
      run_on_terminal({"inspect", golden("llama_sharded").string(), "--tensors"}, 72).out;
  CHECK(widest_line(text.substr(text.find("tensor  "))) <= 72);
  CHECK_THAT(text, ContainsSubstring("model-00002-of-00008.") && ContainsSubstring(".1."));
}

TEST_CASE("diff keeps tensor names within 80 columns and slopes stay on one line", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string source = golden("bloom_12").string(), result = (directory / "result").string();
  REQUIRE(run_program({"convert", source, result, "--kv-heads", "4", "--quiet"}).exit_code == 0);
  const std::string text = run_on_terminal({"diff", source, result}, 80).out;
  const std::string table = text.substr(text.find("difference  "), text.find("setting  "));
  CHECK_THAT(table, ContainsSubstring("F32 [108, 36] -> [60, 36]") &&
                        ContainsSubstring(".query_ke~.weight"));
  CHECK(widest_line(table.substr(0, table.find("setting  "))) <= 80);
  const std::string summary = run_program({"inspect", source}).out;
  CHECK_THAT(summary, ContainsSubstring("slopes") && ContainsSubstring("0.03125 0.01562 ..."));
  CHECK(widest_line(summary.substr(0, summary.find("KV cache"))) <= 80 + source.size());
}

TEST_CASE("colour is used on terminals unless NO_COLOR or TERM forbid it", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "a", tiny_llama());
  put_model(directory / "b", tiny_llama({.kv_heads = 4}));
  const std::vector<std::string> command{"diff", (directory / "a").string(),
                                         (directory / "b").string()};
  const auto coloured = [](const ProgramResult& result) {
    return result.out.find("\x1b[33m") != std::string::npos;
  };
  CHECK(coloured(run_on_terminal(command, 100)));
  CHECK_FALSE(coloured(run_on_terminal(command, 100, {"NO_COLOR=1"})));
  CHECK(coloured(run_on_terminal(command, 100, {"NO_COLOR="})));
  CHECK_FALSE(coloured(run_on_terminal(command, 100, {"TERM=dumb"})));
  CHECK_FALSE(coloured(run_program(command)));
  CHECK_THAT(run_on_terminal(command, 100, {"NO_COLOR=1"}).out, ContainsSubstring("shape"));
}

TEST_CASE("progress is lines of JSON on request", "[end_to_end]") {
  const TemporaryDirectory directory;
  const ProgramResult result =
      run_program({"convert", golden("llama").string(), (directory / "out").string(), "--kv-heads",
                   "2", "--json-progress"});
  CHECK(result.exit_code == 0);
  std::vector<Json> lines;
  std::istringstream text(result.err);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("{")) {
      lines.push_back(Json::parse(line));
    }
  }
  REQUIRE(lines.size() >= 2);
  for (const Json& line : lines) {
    CHECK(line["progress"] == "convert");
    CHECK(line["unit"] == "bytes");
    CHECK(line["done"] <= line["total"]);
  }
  CHECK(lines.back()["done"] == lines.back()["total"]);
  const ProgramResult quiet =
      run_program({"--quiet", "--json-progress", "inspect", golden("llama").string()});
  CHECK(quiet.exit_code == kExitUsage);
  CHECK(quiet.one_line_of_error());
  CHECK_THAT(quiet.err, ContainsSubstring("--json-progress has no effect"));
}

}  // namespace
}  // namespace regroup

// `regroup plot`: curves of several runs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/base/file.h"
#include "tests/child_program.h"
#include "tests/cli/report/markup_reader.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

void put_run(const TemporaryDirectory& directory, const std::string& name, double loss) {
  std::string lines;
  for (int step = 1; step <= 5; ++step) {
    lines += "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(loss / step) +
             ", \"lr\": 0.001, \"tokens_per_second\": 1000}\n";
  }
  put_file(directory / (name + ".run/metrics.jsonl"), lines);
}

TEST_CASE("plot draws several runs with their names into one chart", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_run(directory, "first", 2.0);
  put_run(directory, "sec<ond", 3.0);
  const std::string svg = (directory / "curves.svg").string();
  const auto plot = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plot", (directory / "first").string(),
                                       (directory / "sec<ond.run").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  REQUIRE(plot({"-o", svg}).exit_code == 0);
  const std::string drawn = bytes_of_file(svg);
  CHECK(read_markup(drawn).fault == "");
  CHECK_THAT(drawn, ContainsSubstring("first, training") &&
                        ContainsSubstring("sec&lt;ond, training") && !ContainsSubstring("sec<ond"));
  // Overwrites the drawing, with another chart.
  REQUIRE(plot({"-o", svg, "--chart", "speed"}).exit_code == 0);
  CHECK_THAT(bytes_of_file(svg), ContainsSubstring("Tokens per second"));
  const std::string page = (directory / "curves.html").string();
  REQUIRE(plot({"-o", page}).exit_code == 0);
  CHECK_THAT(bytes_of_file(page), ContainsSubstring("Loss") && ContainsSubstring("Learning rate") &&
                                      ContainsSubstring("Speed") &&
                                      !ContainsSubstring("Gradient norm"));
}

TEST_CASE("plot refuses invalid input and does not overwrite other files", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_run(directory, "run", 2.0);
  put_file(directory / "mine.svg", "not a drawing");
  const auto plot = [&](const std::string& run, const std::string& output,
                        const std::string& chart) {
    return run_program({"plot", (directory / run).string(), "-o", (directory / output).string(),
                        "--chart", chart});
  };
  CHECK(plot("run", "curve.png", "loss").exit_code == 2);
  CHECK(plot("run", "mine.svg", "loss").exit_code == 2);
  CHECK(bytes_of_file(directory / "mine.svg") == "not a drawing");
  CHECK(plot("run", "curve.svg", "gradient-norm").exit_code == 3);
  CHECK(plot("none", "curve.svg", "loss").exit_code != 0);
  CHECK_FALSE(path_exists(directory / "curve.svg"));
}

}  // namespace
}  // namespace regroup

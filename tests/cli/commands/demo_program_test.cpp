// `regroup demo` as a program.
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

TEST_CASE("the demo's models declare as many positions as they are trained on", "[cli]") {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; text.size() < 250'000; ++i) {
    text += fmt::format("line {}\n", i);
  }
  put_file(directory / "text", text);
  const std::string output = (directory / "demo").string();
  const ProgramResult result =
      run_program({"demo", "--text", (directory / "text").string(), "--pretrain-steps", "1",
                   "--alpha", "1", "--output", output, "--json"});
  REQUIRE(result.exit_code == 0);
  CHECK(result.json()["variants"].size() == 4);
  for (const char* variant : {"gqa-4-uptrained", "gqa-2-uptrained", "mqa-uptrained"}) {
    CAPTURE(variant);
    const Json config = Json::parse(bytes_of_file(directory / "demo" / variant / "config.json"));
    const Json& uptrain = config["regroup"]["uptrain"];
    REQUIRE(uptrain.contains("sequence_length"));
    CHECK(config["max_position_embeddings"] == uptrain["sequence_length"]);
  }
}

}  // namespace
}  // namespace regroup

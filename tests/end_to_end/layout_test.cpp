// The example of docs/layout.md.
#include <catch2/catch_test_macros.hpp>

#include "tests/checkpoint_builder.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// The block of JSON number `number` in the documentation.
std::string documented_json(int number) {
  const std::string page = bytes_of_file(fs::path(REGROUP_TESTS_DIR) / "../docs/layout.md");
  const std::string opening = "```json\n";
  std::size_t at = 0;
  for (int i = 0; i < number; ++i) {
    at = page.find(opening, at) + opening.size();
  }
  return page.substr(at, page.find("```", at) - at);
}

// The documented model: 2 layers, hidden size 12, 6 heads of 2.
fs::path put_house_made(const fs::path& directory) {
  put_file(directory / "config.json", documented_json(2));
  std::vector<BuiltTensor> tensors{varied_tensor("embedding", DType::kF32, {7, 12})};
  for (const char* layer : {"blocks.0.attn.", "blocks.1.attn."}) {
    for (const char* name : {"q.weight", "k.weight", "v.weight", "out.weight"}) {
      tensors.push_back(varied_tensor(std::string(layer) + name, DType::kF32, {12, 12}));
    }
    tensors.push_back(varied_tensor(std::string(layer) + "out.bias", DType::kF32, {12}));
  }
  put_checkpoint(directory / "model.safetensors", tensors);
  return directory;
}

TEST_CASE("the documented layout file works for inspect and convert", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string source = put_house_made(directory / "house-made");
  const std::string result = directory / "house-made-gqa2";
  const std::string layout = directory / "layout.json";
  put_file(layout, documented_json(1));

  const ProgramResult before = run_program({"inspect", source, "--layout", layout, "--json"});
  REQUIRE(before.exit_code == 0);
  CHECK(before.json()["family"] == "custom");
  CHECK(before.json()["architecture"] == "HouseMadeLM");
  CHECK(before.json()["kv_heads"] == 6);
  CHECK(before.json()["parameters"] == 7 * 12 + 2 * (4 * 12 * 12 + 12));
  CHECK(before.json()["vocab_size"].is_null());
  CHECK(before.json()["positions"].is_null());

  const ProgramResult converted =
      run_program({"convert", source, result, "--kv-heads", "2", "--layout", layout});
  REQUIRE(converted.exit_code == 0);
  CHECK(converted.err.find("next: regroup inspect " + result + " --layout " + layout) !=
        std::string::npos);
  const Json config = Json::parse(bytes_of_file(fs::path(result) / "config.json"));
  CHECK(config["attention"] == Json::parse(R"({"heads": 6, "kv_heads": 2})"));

  const ProgramResult after = run_program({"inspect", result, "--layout", layout, "--json"});
  REQUIRE(after.exit_code == 0);
  CHECK(after.json()["kv_heads"] == 2);
  CHECK(after.json()["kv_bytes_per_token"] == 2 * 2 * 2 * 2 * 4);
  CHECK(after.json()["disagreements"].empty());
}

TEST_CASE("the documented model without its layout file is refused with a hint", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string source = put_house_made(directory / "house-made");
  const ProgramResult result = run_program({"inspect", source});
  CHECK(result.exit_code != 0);
  CHECK(result.one_line_of_error());
  CHECK(result.err.find("HouseMadeLM") != std::string::npos);
  CHECK(result.err.find("--layout FILE, see docs/layout.md") != std::string::npos);
}

}  // namespace
}  // namespace regroup

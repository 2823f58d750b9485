// `regroup init` as a program: what it writes and what it refuses.
#include <catch2/catch_test_macros.hpp>

#include "tests/checkpoint_builder.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A config alone, as `regroup init` reads it.
std::string put_config(const TemporaryDirectory& directory, const std::string& text) {
  put_file(directory / "given.json", text);
  return (directory / "given.json").string();
}

ProgramResult init(const std::string& config, const fs::path& output,
                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"init", config, output.string(), "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

TEST_CASE("init writes a model that uptrain accepts", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string config = bytes_of_file(golden("t5_v1_1") / "config.json");
  const ProgramResult made = init(put_config(directory, config), directory / "new");
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  CHECK(made.json()["architecture"] == "T5ForConditionalGeneration");
  CHECK(bytes_of_file(directory / "new" / "config.json") == config);
  REQUIRE(init(golden("t5_v1_1").string(), directory / "of_directory").exit_code == 0);
  CHECK(tree_of(directory / "of_directory") == tree_of(directory / "new"));
  put_file(directory / "tokens", bytes_of_numbers(learnable_text(400, 30)));
  const ProgramResult trained = run_program(
      {"uptrain", (directory / "new").string(), "--data", (directory / "tokens").string(),
       "--steps", "2", "--sequence", "20", "--batch", "2", "--first-sentinel", "39", "--output",
       (directory / "trained").string(), "--json"});
  CAPTURE(trained.err);
  REQUIRE(trained.exit_code == 0);
  CHECK(trained.json()["parameters"] == made.json()["parameters"]);
}

TEST_CASE("init gives the same bytes for the same seed only", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string config = put_config(directory, tiny_llama().config);
  const auto weights = [&](const std::string& name, const std::vector<std::string>& more) {
    REQUIRE(init(config, directory / name, more).exit_code == 0);
    return bytes_of_file(directory / name / "model.safetensors");
  };
  const std::string first = weights("first", {"--seed", "1"});
  CHECK(weights("again", {"--seed", "1"}) == first);
  CHECK(weights("other", {"--seed", "2"}) != first);
  weights("half", {"--dtype", "bf16"});
  for (const TensorInfo& tensor : open_checkpoint(directory / "half").tensors()) {
    CHECK(tensor.dtype == DType::kBF16);
  }
}

TEST_CASE("init refuses invalid requests with one line and leaves no files", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto check = [&](const std::string& text, const fs::path& output, int exit_code,
                         const std::string& word) {
    const std::string config = put_config(directory, text);
    const auto before = tree_of(directory.path());
    const ProgramResult result = init(config, output);
    CAPTURE(result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find(word) != std::string::npos);
    const bool untouched = tree_of(directory.path()) == before;
    CHECK(untouched);
  };
  const std::string good = tiny_llama().config;
  check(R"({"model_type": "ministral"})", directory / "new", kExitBadInput,
        "given.json: unknown arch");
  check("{]", directory / "new", kExitBadInput, "given.json");
  check(R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 9,
            "n_positions": 9, "scale_attn_by_inverse_layer_idx": true})",
        directory / "new", kExitBadInput, "scale_attn_by_inverse_layer_idx");
  fs::create_directory(directory / "taken");
  check(good, directory / "taken", kExitUsage, "taken");
  CHECK(init((directory / "none.json").string(), directory / "new").exit_code == kExitBadInput);
}

}  // namespace
}  // namespace regroup

// Models without an output head: commands that predict name what is missing, and others work.
#include <algorithm>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A fixture as transformers saves its base model: without head and without the prefix of names.
TinyModel base_of(const char* fixture, const std::vector<std::string>& head,
                  const std::string& prefix) {
  TinyModel model = golden_model(fixture);
  std::erase_if(model.tensors, [&](const BuiltTensor& tensor) {
    return std::any_of(head.begin(), head.end(),
                       [&](const std::string& begin) { return tensor.name.starts_with(begin); });
  });
  for (BuiltTensor& tensor : model.tensors) {
    tensor.name.erase(0, tensor.name.starts_with(prefix) ? prefix.size() : 0);
  }
  return model;
}

struct BaseCase {
  const char* fixture;
  std::vector<std::string> head;
  std::string prefix;
  std::string missing;
  std::string kv_heads;
};

std::vector<BaseCase> base_cases() {
  return {{"bert", {"cls."}, "bert.", "cls.predictions.transform.dense.weight", "6"},
          {"roberta", {"lm_head."}, "roberta.", "lm_head.dense.weight", "4"},
          {"gpt_neox", {"embed_out."}, "gpt_neox.", "embed_out.weight", "3"}};
}

TEST_CASE("a base model can be calibrated and solved for and refitted", "[uptrain]") {
  for (const BaseCase& base : base_cases()) {
    CAPTURE(base.fixture);
    const TemporaryDirectory directory;
    const std::string source =
        put_model(directory / "source", base_of(base.fixture, base.head, base.prefix)).string();
    const Model opened = open_model(source);
    CHECK(opened.missing_head == base.missing);
    // Its config names a class with a head, which loaders would draw at random.
    const bool writes = opened.spec.causal;
    CHECK(opened.spec.contradictions.size() == (writes ? 1 : 0));
    CHECK((run_program({"inspect", source}).err.find("of random numbers") != std::string::npos) ==
          writes);
    put_file(directory / "tokens", bytes_of_numbers(learnable_text(400, 30)));
    const std::string data = (directory / "tokens").string();
    const std::string statistics = (directory / "stats.safetensors").string();
    const auto run = [&](const std::vector<std::string>& arguments) {
      const ProgramResult result = run_program(arguments);
      CAPTURE(arguments[0], result.err);
      CHECK(result.exit_code == 0);
    };
    run({"calibrate", source, "--data", data, "-o", statistics, "--context", "12"});
    run({"convert", source, (directory / "lowrank").string(), "--kv-heads", base.kv_heads, "--pool",
         "lowrank", "--calibration", statistics});
    run({"verify", source, (directory / "lowrank").string(), "--calibration", statistics});
    CHECK(open_model(directory / "lowrank").missing_head == base.missing);
    run({"convert", source, (directory / "refitted").string(), "--kv-heads", base.kv_heads,
         "--refit", data, "--refit-steps", "2", "--refit-context", "12"});
    run({"convert", source, (directory / "expanded").string(), "--target", "expanded"});
  }
}

TEST_CASE("commands that predict refuse a base model and name what is missing", "[uptrain]") {
  for (const BaseCase& base : base_cases()) {
    CAPTURE(base.fixture);
    const TemporaryDirectory directory;
    const std::string source =
        put_model(directory / "source", base_of(base.fixture, base.head, base.prefix)).string();
    put_file(directory / "tokens", bytes_of_numbers(learnable_text(400, 30)));
    const std::string data = (directory / "tokens").string();
    const auto check = [&](const std::vector<std::string>& arguments, int exit_code) {
      const ProgramResult result = run_program(arguments);
      CAPTURE(arguments[0], result.err);
      CHECK(result.exit_code == exit_code);
      CHECK(result.one_line_of_error());
      CHECK(result.err.find(base.missing) != std::string::npos);
    };
    check({"eval", source, "--data", data, "--context", "12"}, 3);
    check({"uptrain", source, "--data", data, "--steps", "1", "--sequence", "12", "--output",
           (directory / "out").string()},
          3);
    check({"convert", source, (directory / "other").string(), "--to", "gguf"}, 2);
  }
}

TEST_CASE("a base model with tied embeddings predicts as before", "[uptrain]") {
  CHECK(open_model(golden("gpt2_base")).missing_head.empty());
}

}  // namespace
}  // namespace regroup

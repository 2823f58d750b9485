// Windows longer than the model's context length.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/model/serving_cost.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

Model model_with(const TemporaryDirectory& directory, const std::string& key,
                 std::string_view value) {
  TinyModel model = tiny_llama();
  model.set("max_position_embeddings", "128").set(key, value);
  return open_model(put_model(directory / "model", model));
}

TEST_CASE("more tokens than the config's positions give a warning", "[formats]") {
  const TemporaryDirectory directory;
  const Model model = model_with(directory, "note", "1");
  CHECK(usual_context(model, 1024) == 128);
  CHECK(usual_context(model, 64) == 64);
  CHECK(warning_of_context(model, 128).empty());
  CHECK_THAT(warning_of_context(model, 129),
             ContainsSubstring("windows of 129 tokens, the config declares 128 positions"));
}

TEST_CASE("running more tokens than the model was uptrained on gives a warning", "[formats]") {
  const TemporaryDirectory directory;
  const Model model = model_with(directory, "regroup", R"({"uptrain": {"sequence_length": 32}})");
  CHECK(usual_context(model, 1024) == 32);
  CHECK_THAT(warning_of_context(model, 64), ContainsSubstring("uptrained on windows of 32"));
  CHECK(warning_of_positions(model, 64).empty());
}

TEST_CASE("dynamic positions have no limit and malformed records set none", "[formats]") {
  const TemporaryDirectory directory;
  const Model scaled =
      model_with(directory, "rope_scaling", R"({"rope_type": "dynamic", "factor": 2.0})");
  CHECK(warning_of_context(scaled, 4096).empty());
  const TemporaryDirectory other;
  CHECK(usual_context(model_with(other, "regroup", R"({"uptrain": {"sequence_length": "x"}})"),
                      1024) == 128);
}

}  // namespace
}  // namespace regroup

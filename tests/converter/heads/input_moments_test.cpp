// What is assumed of the inputs of attention without data.
#include <catch2/catch_test_macros.hpp>

#include "converter/heads/calibration.h"
#include "formats/model/model.h"
#include "tests/file_tree.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

// The squares of an F32 tensor's values.
std::vector<double> squares_of(const Checkpoint& checkpoint, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(checkpoint.at(name).elements()));
  checkpoint.read(checkpoint.at(name), std::as_writable_bytes(std::span(values)));
  std::vector<double> squares;
  for (const float value : values) {
    squares.push_back(static_cast<double>(value) * static_cast<double>(value));
  }
  return squares;
}

TEST_CASE("ModernBERT's first attention reads what the norm of the embeddings returns",
          "[converter]") {
  const Model model = open_model(golden("modernbert"));
  const auto variance = [&](std::size_t layer) {
    return moments_after_norm(model.spec, AttentionRole::kSelf, layer, InputSide::kQueries, 24,
                              model.checkpoint)
        .variance;
  };
  CHECK(variance(0) == squares_of(model.checkpoint, "model.embeddings.norm.weight"));
  CHECK(variance(1) == squares_of(model.checkpoint, "model.layers.1.attn_norm.weight"));
}

}  // namespace
}  // namespace regroup

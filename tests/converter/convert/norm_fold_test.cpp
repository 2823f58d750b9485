// Folded norms: when they are folded, and the values of a converted model.
#include <cmath>
#include <limits>

#include <catch2/catch_test_macros.hpp>

#include "converter/convert/tensor_step.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Values = std::vector<double>;

// Results are computed in double and rounded once to F32.
constexpr double kRounding = std::numeric_limits<float>::epsilon();

// Whether a norm with weights `folded` is folded into what reads one with weights `kept`.
bool can_fold_into(const Values& folded, const Values& kept, double offset = 0.0) {
  const TemporaryDirectory directory;
  const Shape shape{static_cast<std::int64_t>(folded.size())};
  put_checkpoint(directory / "model.safetensors",
                 std::vector{tensor_of("folded", DType::kF32, shape, folded),
                             tensor_of("kept", DType::kF32, shape, kept)});
  const Checkpoint checkpoint = open_checkpoint(directory / "model.safetensors");
  return can_fold(checkpoint, {{"folded", ""}, {"kept", ""}, {}, {}}, offset);
}

TEST_CASE("a norm is folded unless a quotient of weights is too large", "[converter]") {
  CHECK(can_fold_into({1.0, -2.0}, {0.5, 4.0}));
  CHECK(can_fold_into({1024.0, 1.0}, {1.0, 1.0}));
  CHECK_FALSE(can_fold_into({1025.0, 1.0}, {1.0, 1.0}));
  CHECK_FALSE(can_fold_into({1.0, -1.0}, {1.0, 1.0 / 2048}));
  CHECK(can_fold_into({0.0, 1.0}, {1.0, 1.0}));
  CHECK_FALSE(can_fold_into({1.0, 1.0}, {1.0, 0.0}));
  CHECK_FALSE(can_fold_into({1.0, 0.0}, {1.0, 0.0}));  // 0 / 0
}

TEST_CASE("offsets of stored norm weights count before the quotient", "[converter]") {
  CHECK_FALSE(can_fold_into({1.0}, {0.0}, 0.0));
  CHECK(can_fold_into({1.0}, {0.0}, 1.0));         // 2 / 1
  CHECK_FALSE(can_fold_into({1.0}, {-1.0}, 1.0));  // 2 / 0
}

// What the first map of an MLP [out, in] reads before and after conversion.
struct Mlp {
  Values weight, bias, norm_weight, norm_bias;
};

Mlp mlp_of(const std::filesystem::path& model, const std::string& map, const std::string& norm) {
  const Checkpoint checkpoint = open_checkpoint(model);
  return {values_of(checkpoint, map + ".weight"), values_of(checkpoint, map + ".bias"),
          values_of(checkpoint, norm + ".weight"), values_of(checkpoint, norm + ".bias")};
}

// Both compute the same for any normalised x: equal coefficients of x and equal constants.
void check_same_map(const Mlp& source, const Mlp& result) {
  const std::size_t width = source.norm_weight.size();
  REQUIRE(result.weight.size() == source.weight.size());
  for (std::size_t row = 0; row < source.bias.size(); ++row) {
    double before = source.bias[row], after = result.bias[row];
    double size = std::abs(before) + std::abs(after);
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = row * width + i;
      const double expected = source.weight[at] * source.norm_weight[i];
      const double found = result.weight[at] * result.norm_weight[i];
      REQUIRE(std::abs(found - expected) <= kRounding * std::abs(expected));
      before += source.weight[at] * source.norm_bias[i];
      after += result.weight[at] * result.norm_bias[i];
      size += std::abs(source.weight[at] * source.norm_bias[i]) +
              std::abs(result.weight[at] * result.norm_bias[i]);
    }
    CHECK(std::abs(after - before) <= kRounding * size);
  }
}

TEST_CASE("an MLP computes the same after its norm is folded into the attention's", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("gpt_neox"), directory / "result", {.target = "phi"});
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    CAPTURE(layer);
    const std::string neox = "gpt_neox." + layer, phi = "model." + layer;
    const Mlp source =
        mlp_of(golden("gpt_neox"), neox + "mlp.dense_h_to_4h", neox + "post_attention_layernorm");
    const Mlp result = mlp_of(directory / "result", phi + "mlp.fc1", phi + "input_layernorm");
    const Checkpoint before = open_checkpoint(golden("gpt_neox"));
    CHECK(result.norm_weight == values_of(before, neox + "input_layernorm.weight"));
    CHECK(result.norm_bias == values_of(before, neox + "input_layernorm.bias"));
    CHECK(result.weight != source.weight);
    check_same_map(source, result);
  }
}

TEST_CASE("both norms are folded if the attention's has weights of zero", "[converter]") {
  const TemporaryDirectory directory;
  TinyModel model = golden_model("gpt_neox");
  const std::string neox = "gpt_neox.layers.1.", phi = "model.layers.1.";
  BuiltTensor& norm = model.tensor(neox + "input_layernorm.weight");
  norm.bytes.assign(norm.bytes.size(), '\0');
  put_model(directory / "source", model);
  convert(directory / "source", directory / "result", {.target = "phi"});
  const Mlp result = mlp_of(directory / "result", phi + "mlp.fc1", phi + "input_layernorm");
  CHECK(result.norm_weight == Values(result.norm_weight.size(), 1.0));
  CHECK(result.norm_bias == Values(result.norm_bias.size(), 0.0));
  check_same_map(
      mlp_of(directory / "source", neox + "mlp.dense_h_to_4h", neox + "post_attention_layernorm"),
      result);
}

}  // namespace
}  // namespace regroup

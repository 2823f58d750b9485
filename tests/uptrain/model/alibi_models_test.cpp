// Encoders and encoder-decoders whose positions were replaced by ALiBi.
#include <cstdlib>
#include <numeric>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/families/family.h"
#include "formats/spec/alibi.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/ops/rope.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr double kWrongSlopes = 1e-2;
Parameters parameters_of(const Model& model) {
  return load_parameters(model.spec, model.checkpoint, at::kFloat, at::kCPU);
}

// As in Jina's models.
TinyModel bert_with_alibi() {
  TinyModel bert = golden_model("bert").set("position_embedding_type", "\"alibi\"");
  bert.remove("bert.embeddings.position_embeddings.weight");
  return bert;
}

// Sets a T5's bias tables to ALiBi's penalties. Each distance has its own bucket.
void fill_tables(const ModelSpec& spec, const Parameters& parameters, AttentionRole role) {
  const bool causal = role == AttentionRole::kSelf;
  const std::vector<double> slopes = alibi_slopes(spec.query_heads);
  for (const LayerTensors& layer : spec.stack(role)) {
    if (layer.relative_bias.empty()) {
      continue;
    }
    const at::Tensor table = parameters.at(layer.relative_bias);  // [buckets, H]
    for (std::int64_t distance = -7; distance <= (causal ? 0 : 7); ++distance) {
      for (std::int64_t h = 0; h < spec.query_heads; ++h) {
        table[relative_bucket(spec.relative_bias, distance, causal)][h] =
            -slopes[static_cast<std::size_t>(h)] * static_cast<double>(std::abs(distance));
      }
    }
  }
}

}  // namespace

// transformers computes such a T5, too. Its learned biases equal ALiBi's in windows of up to 16
// tokens, where 32 buckets hold one distance each.
TEST_CASE("a T5 with ALiBi equals a T5 whose bias tables hold ALiBi's penalties", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("t5_small", "t5_v1_1", "mt5");
  const auto form = GENERATE(AlibiForm::kBias, AlibiForm::kExtraDimensions);
  CAPTURE(name);
  const TemporaryDirectory directory;
  convert(golden(name), directory / "grouped", {.kv_heads = {4}, .roles = kAllRoles});
  convert(golden(name), directory / "alibi",
          {.kv_heads = {4}, .roles = kAllRoles, .positions = PositionChange::kAlibi});
  const at::Tensor tokens = load_golden_case(name).tokens.narrow(1, 0, 13);
  const Model filled = open_computable_model(directory / "grouped");
  const Parameters parameters = parameters_of(filled);
  const at::Tensor learned = window_logits(Transformer(filled.spec, parameters), tokens);
  fill_tables(filled.spec, parameters, AttentionRole::kSelf);
  const Model model = open_computable_model(directory / "alibi");
  Transformer alibi(model.spec, parameters_of(model));
  alibi.set_alibi_form(form);
  const at::Tensor computed = window_logits(alibi, tokens);
  // The biases of both stacks matter.
  CHECK(largest_difference(computed, window_logits(Transformer(filled.spec, parameters), tokens)) >=
        kWrongSlopes);
  fill_tables(filled.spec, parameters, AttentionRole::kEncoder);
  CHECK(largest_difference(computed, window_logits(Transformer(filled.spec, parameters), tokens)) <=
        1e-4);
  CHECK(largest_difference(computed, learned) >= kWrongSlopes);
}

TEST_CASE("slopes of zero equal a model without positions", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("t5_v1_1", "bert", "roberta");
  CAPTURE(name);
  const TemporaryDirectory directory;
  convert(golden(name), directory / "alibi", {.positions = PositionChange::kAlibi});
  Model model = open_computable_model(directory / "alibi");
  const Parameters parameters = parameters_of(model);
  const at::Tensor tokens = load_golden_case(name).tokens;
  const at::Tensor steep = window_logits(Transformer(model.spec, parameters), tokens);
  const std::vector<double> flat(12, 0.0);
  model.spec.alibi.slopes = {flat};
  model.spec.alibi.encoder_slopes = {flat};
  const at::Tensor level = window_logits(Transformer(model.spec, parameters), tokens);
  model.spec.positions = PositionKind::kNone;
  const at::Tensor none = window_logits(Transformer(model.spec, parameters), tokens);
  CHECK(largest_difference(level, none) <= 1e-5);
  CHECK(largest_difference(steep, none) >= kWrongSlopes);
}

TEST_CASE("an encoder with ALiBi distinguishes distances but not directions", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  convert(golden("bert"), directory / "alibi",
          {.kv_heads = {4}, .positions = PositionChange::kAlibi});
  const Model model = open_computable_model(directory / "alibi");
  const Transformer bert(model.spec, parameters_of(model));
  const at::Tensor tokens = load_golden_case("bert").tokens;
  const at::Tensor backwards = window_logits(bert, tokens.flip(1)).flip(1);
  const at::Tensor rotated = window_logits(bert, tokens.roll(1, 1)).roll(-1, 1);
  const at::Tensor logits = window_logits(bert, tokens);
  CHECK(largest_difference(logits, backwards) <= 1e-4);
  CHECK(largest_difference(logits, rotated) >= kWrongSlopes);
}

TEST_CASE("a BERT published with ALiBi equals a BERT converted to ALiBi", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  convert(golden("bert"), directory / "given", {.positions = PositionChange::kAlibi});
  put_model(directory / "has", bert_with_alibi());
  const at::Tensor tokens = load_golden_case("bert").tokens;
  const auto logits = [&](const fs::path& path) {
    const Model model = open_computable_model(path);
    return window_logits(Transformer(model.spec, parameters_of(model)), tokens);
  };
  CHECK(largest_difference(logits(directory / "has"), logits(directory / "given")) == 0.0);
  CHECK(largest_difference(logits(directory / "has"), logits(golden("bert"))) >= kWrongSlopes);
}

// With regroup's own model_type, heads may be reordered without pooling.
TEST_CASE("reordered heads with ALiBi and their slopes compute the same logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("bloom", "mpt", "falcon_rw", "bert");
  CAPTURE(name);
  const TemporaryDirectory directory;
  TinyModel source = std::string_view(name) == "bert" ? bert_with_alibi() : golden_model(name);
  source.config = with_alibi_names(source.config);
  put_model(directory / "source", source);
  const Model model = open_computable_model(directory / "source");
  std::vector<std::int64_t> backwards(static_cast<std::size_t>(model.spec.query_heads));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  HeadOrder order;
  order.set(AttentionRole::kSelf, 1, backwards);
  convert(directory / "source", directory / "moved", {.grouping = "similar", .order = order});
  const at::Tensor tokens = load_golden_case(name).tokens;
  const at::Tensor before = window_logits(Transformer(model.spec, parameters_of(model)), tokens);
  Model moved = open_computable_model(directory / "moved");
  const Parameters parameters = parameters_of(moved);
  const auto difference = [&] {
    return largest_difference(before, window_logits(Transformer(moved.spec, parameters), tokens));
  };
  CHECK(difference() <= 1e-4);
  moved.spec.alibi.slopes.clear();  // what a stock loader would use
  CHECK(difference() >= kWrongSlopes);
}

TEST_CASE("each layer uses its own recorded slopes in both stacks", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  convert(golden("t5_v1_1"), directory / "alibi", {.positions = PositionChange::kAlibi});
  Model model = open_computable_model(directory / "alibi");
  const Parameters parameters = parameters_of(model);
  const at::Tensor tokens = load_golden_case("t5_v1_1").tokens;
  const at::Tensor before = window_logits(Transformer(model.spec, parameters), tokens);
  const std::vector<double> slopes = alibi_slopes(12);
  const std::vector<double> reversed(slopes.rbegin(), slopes.rend());
  const auto change_layer = [&](std::vector<std::vector<double>>& recorded, std::size_t layer) {
    recorded = {slopes, slopes};
    CHECK(largest_difference(before, window_logits(Transformer(model.spec, parameters), tokens)) ==
          0.0);
    recorded[layer] = reversed;
    const double moved =
        largest_difference(before, window_logits(Transformer(model.spec, parameters), tokens));
    recorded.clear();
    return moved;
  };
  for (const std::size_t layer : {0, 1}) {
    CAPTURE(layer);
    CHECK(change_layer(model.spec.alibi.slopes, layer) >= kWrongSlopes);
    CHECK(change_layer(model.spec.alibi.encoder_slopes, layer) >= kWrongSlopes);
  }
}

}  // namespace regroup

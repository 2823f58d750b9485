// How the configs and tensors of encoder families are read, and which are refused.
#include <cmath>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_directory.h"
#include "formats/model/model_summary.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinRel;
using Heads = std::vector<std::int64_t>;

// The spec of a fixture. `unused` tensors of it are not part of the model.
ModelSpec encoder_spec(std::string_view name, std::size_t unused = 0) {
  const ModelDirectory model = open_model_directory(golden(name));
  ModelSpec spec = describe_model(model.config, model.checkpoint, "config.json");
  check_all_shapes(spec, model.checkpoint);
  CHECK(expected_tensors(spec).size() + unused == model.checkpoint.tensors().size());
  return spec;
}

TinyModel with(std::string_view name, const std::string& key, std::string_view value) {
  return golden_model(name).set(key, value);
}

ModelSummary summary_of(const TinyModel& tiny) {
  const TemporaryDirectory directory;
  put_model(directory.path(), tiny);
  return summarize_model(directory.path(), open_checkpoint(directory.path()));
}

TEST_CASE("T5 has two stacks with relative biases in the first layers and unscaled scores",
          "[formats]") {
  const ModelSpec spec = encoder_spec("t5");
  CHECK(spec.family == "t5");
  CHECK(spec.encoder_layers.size() == 2);
  CHECK(spec.layers.size() == 3);
  CHECK(spec.hidden_size == 20);
  CHECK(spec.head_dim == 3);  // 12 · 3 is not the hidden size
  CHECK(spec.kv_heads == Heads{12, 12, 12});
  CHECK(spec.cross_kv_heads == Heads{12, 12, 12});
  CHECK(spec.encoder_kv_heads == Heads{12, 12});
  CHECK(spec.positions == PositionKind::kRelativeBias);
  CHECK(spec.relative_bias.buckets == 8);
  CHECK(spec.relative_bias.max_distance == 12);
  CHECK(spec.attention_scale == 1.0);
  CHECK_THAT(spec.output_scale, WithinRel(1 / std::sqrt(20.0), 1e-12));
  CHECK(spec.activation == Activation::kRelu);
  CHECK(spec.lm_head.empty());
  CHECK(spec.decoder_start_token == 0);
  CHECK(spec.layers[0].relative_bias ==
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  CHECK(spec.layers[1].relative_bias.empty());
  CHECK(spec.encoder_layers[1].relative_bias.empty());
  CHECK(spec.layers[2].cross_attention.k.weight ==
        "decoder.block.2.layer.1.EncDecAttention.k.weight");
  CHECK(spec.layers[2].down.weight == "decoder.block.2.layer.2.DenseReluDense.wo.weight");
  CHECK(spec.encoder_layers[1].up.weight == "encoder.block.1.layer.1.DenseReluDense.wi.weight");
  CHECK_FALSE(spec.encoder_layers[1].cross_attention.present());
  CHECK_FALSE(spec.loaders_read_kv_heads);
}

TEST_CASE("copies of T5's embedding are not counted as parameters", "[formats]") {
  CHECK(encoder_spec("t5_small", /*unused=*/4).lm_head.empty());
}

TEST_CASE("T5 v1.1 has gated MLPs and its own unscaled output", "[formats]") {
  // As published, and as saved by transformers 5: tied in the config, with a note that it was not.
  for (const char* name : {"t5_v1_1", "t5_v1_1_saved_again"}) {
    CAPTURE(name);
    const ModelSpec spec = encoder_spec(name);
    CHECK(spec.lm_head == "lm_head.weight");
    CHECK(spec.output_scale == 1.0);
    CHECK(spec.activation == Activation::kGeluTanh);
    CHECK(spec.layers[1].gate.weight == "decoder.block.1.layer.2.DenseReluDense.wi_0.weight");
    CHECK(spec.layers[1].up.weight == "decoder.block.1.layer.2.DenseReluDense.wi_1.weight");
  }
}

TEST_CASE("saved feed-forward fields take precedence over feed_forward_proj", "[formats]") {
  CHECK(spec_of(with("t5_v1_1", "feed_forward_proj", "\"gated-silu\"")).activation ==
        Activation::kSilu);
  CHECK(spec_of(with("t5_v1_1", "dense_act_fn", "\"gelu\"")).activation == Activation::kGeluErf);
  CHECK_FALSE(spec_of(with("t5", "is_gated_act", "false")).layers[0].gate.present());
  CHECK_THAT(refusal_of([] { spec_of(with("t5_v1_1", "feed_forward_proj", "\"gated-maxout\"")); }),
             is_bad_input("config.json", "maxout"));
}

TEST_CASE("mT5 never scales its outputs and UMT5 does when tied", "[formats]") {
  const ModelSpec mt5 = encoder_spec("mt5");
  CHECK(mt5.output_scale == 1.0);
  CHECK(mt5.lm_head == "lm_head.weight");
  CHECK(mt5.decoder_start_token == 2);
  const ModelSpec umt5 = encoder_spec("umt5");
  CHECK_THAT(umt5.output_scale, WithinRel(1 / std::sqrt(20.0), 1e-12));
  CHECK(umt5.lm_head.empty());
  CHECK_FALSE(umt5.encoder_layers[1].relative_bias.empty());
  CHECK(spec_of(with("umt5", "tie_word_embeddings", "false")).output_scale == 1.0);
}

TEST_CASE("kv heads of each role have their own config key", "[formats]") {
  TinyModel model = with("t5", "num_key_value_heads", "[4, 3, 1]");
  model.set("cross_num_key_value_heads", "2").set("encoder_num_key_value_heads", "6");
  const ModelSpec spec = spec_of(model);
  CHECK(spec.kv_heads == Heads{4, 3, 1});
  CHECK(spec.cross_kv_heads == Heads{2, 2, 2});
  CHECK(spec.encoder_kv_heads == Heads{6, 6});
  CHECK_THAT(refusal_of([] { spec_of(with("t5", "cross_num_key_value_heads", "5")); }),
             is_bad_input("cross_num_key_value_heads", "5", "12"));
  CHECK_THAT(refusal_of([] { spec_of(with("t5", "encoder_num_key_value_heads", "[4]")); }),
             is_bad_input("encoder_num_key_value_heads", "1 layers", "2"));
}

TEST_CASE("impossible buckets and layers and tokens are refused", "[formats]") {
  const auto refusal = [](std::string_view name, const std::string& key, std::string_view value) {
    return refusal_of([&] { spec_of(with(name, key, value)); });
  };
  CHECK_THAT(refusal("t5", "relative_attention_num_buckets", "3"), is_bad_input("3 buckets"));
  CHECK_THAT(refusal("t5", "relative_attention_max_distance", "4"), is_bad_input("up to 4"));
  CHECK_THAT(refusal("t5", "num_decoder_layers", "100000"),
             is_bad_input("num_decoder_layers", "100000"));
  CHECK_THAT(refusal("t5", "decoder_start_token_id", "40"),
             is_bad_input("decoder_start_token_id", "40", "39"));
  CHECK_THAT(refusal("t5", "pad_token_id", "-1"), is_bad_input("pad_token_id", "-1"));
  CHECK_THAT(refusal("bert", "mask_token_id", "\"a\""), is_bad_input("mask_token_id"));
  CHECK_THAT(refusal("roberta", "max_position_embeddings", "2"),
             is_bad_input("max_position_embeddings"));
}

TEST_CASE("missing tensors of either stack are named", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel tiny = golden_model("t5");
  tiny.remove("encoder.block.1.layer.0.SelfAttention.v.weight");
  tiny.remove("decoder.block.2.layer.1.EncDecAttention.k.weight");
  const ModelDirectory model = open_model_directory(put_model(directory.path(), tiny));
  const ModelSpec spec = describe_model(model.config, model.checkpoint, "config.json");
  CHECK_THAT(refusal_of([&] { check_attention_shapes(spec, model.checkpoint); }),
             is_bad_input("encoder.block.1.layer.0.SelfAttention.v.weight is missing",
                          "decoder.block.2.layer.1.EncDecAttention.k.weight is missing"));
}

TEST_CASE("BERT has norms after residuals and a masked-language-model head", "[formats]") {
  const ModelSpec spec = encoder_spec("bert");
  CHECK(spec.family == "bert");
  CHECK_FALSE(spec.causal);
  CHECK_FALSE(spec.has_encoder());
  CHECK(spec.norm_placement == NormPlacement::kAfterResidual);
  CHECK(spec.positions == PositionKind::kLearned);
  CHECK(spec.position_offset == 0);
  CHECK(spec.token_types == 2);
  CHECK(spec.head_transform.weight == "cls.predictions.transform.dense.weight");
  CHECK(spec.head_norm.weight == "cls.predictions.transform.LayerNorm.weight");
  CHECK(spec.lm_head_bias == "cls.predictions.bias");
  CHECK(spec.lm_head.empty());
  CHECK_FALSE(spec.mask_token);
  CHECK(spec_of(with("bert", "mask_token_id", "4")).mask_token == 4);
  CHECK(spec.layers[1].attention_norm.bias ==
        "bert.encoder.layer.1.attention.output.LayerNorm.bias");
}

TEST_CASE("norms of a BERT from TensorFlow may be called gamma and beta", "[formats]") {
  const ModelSpec spec = encoder_spec("bert_base", /*unused=*/2);
  CHECK(spec.embedding_norm.weight == "bert.embeddings.LayerNorm.gamma");
  CHECK(spec.layers[1].mlp_norm.bias == "bert.encoder.layer.1.output.LayerNorm.beta");
  CHECK(spec.head_norm.bias == "cls.predictions.transform.LayerNorm.beta");
  for (const auto& [name, norm] : {std::pair{"distilbert", "distilbert.embeddings.LayerNorm."},
                                   std::pair{"mpnet", "mpnet.encoder.layer.1.output.LayerNorm."}}) {
    TinyModel model = golden_model(name);
    model.tensor(norm + std::string("weight")).name = norm + std::string("gamma");
    model.tensor(norm + std::string("bias")).name = norm + std::string("beta");
    const TemporaryDirectory directory;
    const Model opened = open_model(put_model(directory / "model", model));
    check_all_shapes(opened.spec, opened.checkpoint);
  }
}

TEST_CASE("RoBERTa's positions begin after the padding token's", "[formats]") {
  const ModelSpec spec = encoder_spec("roberta");
  CHECK(spec.position_offset == 2);
  CHECK(spec.max_positions == 16);
  CHECK(spec.token_types == 1);
  CHECK(spec.head_transform.weight == "lm_head.dense.weight");
  CHECK(spec.lm_head_bias == "lm_head.bias");
  CHECK(spec.head_activation == Activation::kGeluErf);
}

TEST_CASE("a BERT without its head opens and names the missing tensor", "[formats]") {
  TinyModel model = golden_model("bert");
  for (const char* part : {"bias", "transform.dense.weight", "transform.dense.bias",
                           "transform.LayerNorm.weight", "transform.LayerNorm.bias"}) {
    model.remove(std::string("cls.predictions.") + part);
  }
  for (BuiltTensor& tensor : model.tensors) {
    tensor.name.erase(0, std::string_view("bert.").size());
  }
  const ModelSpec spec = spec_of(model);
  CHECK(spec.token_embedding == "embeddings.word_embeddings.weight");
  CHECK(spec.not_computable.empty());
  const TemporaryDirectory directory;
  const Model opened = open_model(put_model(directory / "model", model));
  CHECK(opened.missing_head == "cls.predictions.transform.dense.weight");
  CHECK(expected_tensors(opened.spec).size() == model.tensors.size());
  CHECK_FALSE(opened.spec.head_transform.present());
  CHECK(open_model(golden("bert")).missing_head.empty());
}

TEST_CASE("a BERT with another kind of positions is refused", "[formats]") {
  for (const char* kind : {"\"relative_key\"", "\"relative_key_query\"", "\"rotary\""}) {
    CHECK_THAT(refusal_of([&] { spec_of(with("bert", "position_embedding_type", kind)); }),
               is_bad_input("config.json", "position_embedding_type", "absolute, alibi"));
  }
}

TEST_CASE("a BERT with ALiBi has slopes in both directions and no position embedding",
          "[formats]") {
  TinyModel model = with("bert", "position_embedding_type", "\"alibi\"");
  model.remove("bert.embeddings.position_embeddings.weight");
  const ModelSpec spec = spec_of(model);
  CHECK((spec.positions == PositionKind::kAlibi));
  CHECK_FALSE(spec.causal);
  CHECK(spec.position_embedding.empty());
  CHECK(expected_tensors(spec).size() == model.tensors.size());
  const ModelSummary summary = summary_of(model);
  CHECK(summary.positions == "alibi");
  CHECK(summary.alibi_slopes.size() == spec.layers.size());
}

TEST_CASE("a BERT configured as a decoder is refused", "[formats]") {
  CHECK_THAT(refusal_of([] { spec_of(with("bert", "is_decoder", "true")); }),
             is_bad_input("config.json", "is_decoder", "only encoders"));
  CHECK_THAT(refusal_of([] { spec_of(with("roberta", "add_cross_attention", "true")); }),
             is_bad_input("config.json", "add_cross_attention"));
}

TEST_CASE("the summary of an encoder-decoder lists each kind of attention", "[formats]") {
  TinyModel model = golden_model("t5");
  for (int layer = 0; layer < 3; ++layer) {
    for (const char* part : {"k", "v"}) {
      const std::string name =
          fmt::format("decoder.block.{}.layer.1.EncDecAttention.{}.weight", layer, part);
      model.tensor(name) = varied_tensor(name, DType::kF32, {4 * 3, 20});
    }
  }
  model.set("cross_num_key_value_heads", "[4, 4, 3]");
  const ModelSummary summary = summary_of(model);
  REQUIRE(summary.roles.size() == 3);
  const AttentionSummary &encoder = summary.roles[0], &decoder = summary.roles[1],
                         &cross = summary.roles[2];
  CHECK(encoder.role == AttentionRole::kEncoder);
  CHECK(encoder.kv_heads == Heads{12, 12});
  CHECK_FALSE(encoder.kv_bytes_per_token);
  CHECK(decoder.attention == "mha");
  CHECK(decoder.kv_bytes_per_token == 3 * 2 * 12 * 3 * 4);  // layers · k and v · heads · d · bytes
  CHECK(cross.role == AttentionRole::kCross);
  CHECK(cross.attention == "gqa");
  CHECK(cross.kv_heads == Heads{4, 4, 4});
  CHECK(cross.kv_bytes_per_token == 3 * 2 * 4 * 3 * 4);
  CHECK(summary.kv_heads == decoder.kv_heads);
  CHECK(summary.kv_bytes_per_token == decoder.kv_bytes_per_token);
  REQUIRE(summary.disagreements.size() == 1);
  CHECK(summary.disagreements[0] ==
        "cross layer 2: the config says 3 kv heads, the tensors hold 4");
}

TEST_CASE("the summary of an encoder counts no cache", "[formats]") {
  const ModelSummary summary = summary_of(golden_model("bert"));
  CHECK(summary.roles.empty());
  CHECK(summary.attention == "mha");
  CHECK_FALSE(summary.kv_bytes_per_token);
}

TEST_CASE("relatives of BERT are read with their own names and refused where they differ",
          "[formats]") {
  CHECK(encoder_spec("xlm_roberta").position_offset == 2);
  CHECK(encoder_spec("camembert").position_offset == 2);
  const ModelSpec electra = encoder_spec("electra");
  CHECK(electra.position_offset == 0);
  CHECK((electra.activation == Activation::kRelu));
  CHECK((electra.head_activation == Activation::kGeluErf));
  const ModelSpec distilbert = encoder_spec("distilbert");
  CHECK(distilbert.token_type_embedding.empty());
  CHECK_FALSE(distilbert.causal);
  CHECK(distilbert.layers[1].attention.k.weight ==
        "distilbert.transformer.layer.1.attention.k_lin.weight");
  const auto refusal = [](const TinyModel& tiny) { return refusal_of([&] { spec_of(tiny); }); };
  CHECK_THAT(refusal(with("electra", "is_decoder", "true")), is_bad_input("is_decoder"));
  CHECK_THAT(refusal(with("distilbert", "n_heads", "7")), is_bad_input("no multiple of 7 heads"));
}

}  // namespace
}  // namespace regroup

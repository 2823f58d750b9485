// How encoders with RoPE, windows, ALiBi, a relative bias or projected embeddings are read, and
// which are refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "tests/file_tree.h"
#include "tests/formats/families/described_model.h"
#include "tests/refusal.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

// The spec of a fixture all of whose tensors are part of the model.
ModelSpec whole_spec(std::string_view name) {
  const ModelDirectory model = open_model_directory(golden(name));
  ModelSpec spec = spec_of(model);
  check_all_shapes(spec, model.checkpoint);
  CHECK(expected_tensors(spec).size() == model.checkpoint.tensors().size());
  CHECK_FALSE(spec.causal);
  CHECK(spec.not_computable.empty());
  return spec;
}

ModelSpec changed_spec(std::string_view name, const std::string& key, std::string_view value) {
  const TemporaryDirectory directory;
  return spec_of(
      open_model_directory(put_model(directory.path(), golden_model(name).set(key, value))));
}

Error refused(std::string_view name, const std::string& key, std::string_view value) {
  return refusal_of_model(golden_model(name).set(key, value));
}

TEST_CASE("ModernBERT has windows on both sides, two RoPEs and no norm before its first layer",
          "[formats]") {
  const ModelSpec spec = whole_spec("modernbert");
  CHECK(spec.sliding_window == 4);  // three on each side, and the query's own position
  CHECK(spec.layers[0].without_window);
  CHECK_FALSE(spec.layers[1].without_window);
  CHECK_FALSE(spec.layers[2].without_window);
  CHECK(spec.layers[3].without_window);
  CHECK(spec.rope.theta == 300.0);
  REQUIRE(spec.window_rope);
  CHECK(spec.window_rope->theta == 40.0);
  CHECK_FALSE(spec.layers[0].attention_norm.present());
  CHECK(spec.layers[1].attention_norm.present());
  CHECK((spec.layers[1].attention.packing == Packing::kQueryKeyValue));
  CHECK(spec.layers[1].fused_gate());
}

TEST_CASE("ModernBERT's older keys say the same", "[formats]") {
  const ModelSpec spec = whole_spec("modernbert_biases");
  CHECK(spec.sliding_window == 3);
  CHECK(spec.rope.theta == 300.0);
  REQUIRE(spec.window_rope);
  CHECK(spec.window_rope->theta == 40.0);
  CHECK(spec.layers[2].without_window);
  CHECK_FALSE(spec.layers[3].without_window);
  CHECK(changed_spec("modernbert_biases", "local_rope_theta", "null").not_computable ==
        "local_rope_theta null");
  CHECK(changed_spec("modernbert_biases", "rope_scaling", R"({"type": "linear", "factor": 2})")
            .not_computable == "rope_scaling");
}

TEST_CASE("a ModernBERT that classifies has no masked head, whatever its decoder's settings",
          "[formats]") {
  TinyModel model = golden_model("modernbert");
  model.remove("decoder.bias");
  model.tensors.push_back(varied_tensor("classifier.weight", DType::kF32, {2, 48}));
  for (const char* bias : {"true", "false"}) {
    const TemporaryDirectory directory;
    const Model opened =
        open_model(put_model(directory / "model", model.set("decoder_bias", bias)));
    CHECK(opened.missing_head == "decoder.weight");
    CHECK_FALSE(opened.spec.head_transform.present());
    check_all_shapes(opened.spec, opened.checkpoint);
  }
}

TEST_CASE("an encoder with windows cannot have ALiBi", "[formats]") {
  ModelSpec spec = whole_spec("modernbert");
  CHECK_THAT(refusal_of([&] { use_alibi(spec); }), is_wrong_usage("window"));
}

TEST_CASE("NomicBERT is read with the keys of its own code and with those of transformers",
          "[formats]") {
  const ModelSpec spec = whole_spec("nomic_bert");
  CHECK(spec.rope.theta == 1000.0);
  CHECK(spec.layers[0].gate.weight == "nomic_bert.encoder.layers.0.mlp.fc12.weight");
  TinyModel own = golden_model("nomic_bert");
  own.config = R"({"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 24,
    "n_head": 6, "n_inner": 20, "n_layer": 2, "n_positions": 16, "vocab_size": 40,
    "layer_norm_epsilon": 0.02, "rotary_emb_base": 500, "activation_function": "swiglu",
    "rotary_emb_fraction": 1.0, "rotary_scaling_factor": null, "prenorm": false})";
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(put_model(directory.path(), own));
  const ModelSpec other = spec_of(model);
  check_all_shapes(other, model.checkpoint);
  CHECK(other.rope.theta == 500.0);
  CHECK(other.norm_epsilon == spec.norm_epsilon);
  CHECK(other.max_positions == spec.max_positions);
  CHECK(other.not_computable.empty());
}

TEST_CASE("a NomicBERT with other settings of its own code is not computed", "[formats]") {
  const auto reason = [](const char* key, const char* value) {
    return changed_spec("nomic_bert", key, value).not_computable;
  };
  CHECK(reason("prenorm", "true") == "prenorm = true");
  CHECK(reason("rotary_emb_interleaved", "true") == "rotary_emb_interleaved = true");
  CHECK(reason("rotary_scaling_factor", "2") == "rotary_scaling_factor");
  CHECK(reason("rotary_emb_fraction", "0.5") == "rotary_emb_fraction");
  CHECK(reason("activation_function", "\"gelu\"") == "activation_function gelu");
}

TEST_CASE("MPNet has a table of positions and one relative bias for all layers", "[formats]") {
  const ModelSpec spec = whole_spec("mpnet");
  CHECK((spec.positions == PositionKind::kRelativeBias));
  CHECK(spec.has_position_table());
  CHECK(spec.position_offset == 2);
  CHECK(spec.max_positions == 62);
  CHECK(spec.layers[0].relative_bias == "mpnet.encoder.relative_attention_bias.weight");
  CHECK(spec.layers[1].relative_bias.empty());
  CHECK_FALSE(spec.attention_scale);
  CHECK(position_tensors(spec).size() == 2);
  CHECK(changed_spec("mpnet", "relative_attention_num_buckets", "16").not_computable ==
        "relative_attention_num_buckets other than 32");
  CHECK_THAT(refused("mpnet", "max_position_embeddings", "2"), is_bad_input("no position"));
}

TEST_CASE("Jina's BERT and MosaicBERT have ALiBi and gated MLPs", "[formats]") {
  const ModelSpec jina = whole_spec("jina_bert");
  const ModelSpec mosaic = whole_spec("mosaic_bert");
  for (const ModelSpec* spec : {&jina, &mosaic}) {
    CHECK((spec->positions == PositionKind::kAlibi));
    CHECK(spec->position_embedding.empty());
    CHECK(spec->layers[0].fused_gate());
    CHECK((spec->activation == Activation::kGeluErf));
  }
  CHECK((jina.layers[0].attention.packing == Packing::kSeparate));
  CHECK((mosaic.layers[0].attention.packing == Packing::kQueryKeyValue));
  CHECK((changed_spec("jina_bert", "feed_forward_type", "\"reglu\"").activation ==
         Activation::kRelu));
  CHECK((changed_spec("jina_bert", "hidden_act", "\"relu\"").head_activation == Activation::kRelu));
}

TEST_CASE("gated MLPs and fused projections of another BERT are refused", "[formats]") {
  CHECK_THAT(refused("jina_bert", "feed_forward_type", "\"original\""),
             is_bad_input("feed_forward_type is original", "layer 0"));
  CHECK_THAT(refused("jina_bert", "feed_forward_type", "\"swiglu\""),
             is_bad_input("feed_forward_type is swiglu"));
  CHECK_THAT(refused("bert", "feed_forward_type", "\"geglu\""),
             is_bad_input("feed_forward_type is geglu"));
  CHECK_THAT(refused("mosaic_bert", "alibi_starting_size", "null"),
             is_bad_input("Wqkv", "alibi_starting_size"));
  TinyModel normed = golden_model("jina_bert");
  const std::string norm = "bert.encoder.layer.0.attention.self.layer_norm_k.weight";
  normed.tensors.push_back(varied_tensor(norm, DType::kF32, {24}));
  CHECK_THAT(refusal_of_model(normed), is_bad_input("layer_norm_k"));
}

TEST_CASE("MosaicBERT's vocabulary is padded to a multiple of eight", "[formats]") {
  CHECK(changed_spec("mosaic_bert", "vocab_size", "35").vocab_size == 40);
}

TEST_CASE("a small ELECTRA projects its embeddings after their norm", "[formats]") {
  const ModelSpec spec = whole_spec("electra_small");
  CHECK(spec.projected_last);
  CHECK(spec.embedding_width() == 16);
  CHECK(spec.project_in.weight == "electra.embeddings_project.weight");
  CHECK_FALSE(whole_spec("electra").projected_last);
  CHECK_THAT(refusal_of([] { changed_spec("electra", "is_decoder", "true"); }),
             is_bad_input("is_decoder"));
}

}  // namespace
}  // namespace regroup

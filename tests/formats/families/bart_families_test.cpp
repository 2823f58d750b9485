// How the configs and tensors of BART and its relatives are read, and which are refused.
#include <cmath>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_directory.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinRel;

// The spec of a fixture. `unused` tensors of it are not part of the model.
ModelSpec bart_spec(std::string_view name, std::size_t unused = 0) {
  const ModelDirectory model = open_model_directory(golden(name));
  ModelSpec spec = describe_model(model.config, model.checkpoint, "config.json");
  check_all_shapes(spec, model.checkpoint);
  CHECK(expected_tensors(spec).size() + unused == model.checkpoint.tensors().size());
  return spec;
}

TEST_CASE("BART has learned positions and norms of both embeddings, after each residual",
          "[formats]") {
  const ModelSpec spec = bart_spec("bart");
  CHECK(spec.family == "bart");
  CHECK(spec.encoder_layers.size() == 2);
  CHECK(spec.layers.size() == 2);
  CHECK(spec.head_dim == 3);
  CHECK(spec.intermediate_size == 16);
  CHECK(spec.encoder_layers[0].intermediate_size == 20);
  CHECK(spec.positions == PositionKind::kLearned);
  CHECK(spec.position_offset == 2);
  CHECK(spec.position_embedding == "model.decoder.embed_positions.weight");
  CHECK(spec.encoder_position_embedding == "model.encoder.embed_positions.weight");
  CHECK(spec.encoder_embedding_norm.weight == "model.encoder.layernorm_embedding.weight");
  CHECK(spec.norm_placement == NormPlacement::kAfterResidual);
  CHECK_FALSE(spec.final_norm.present());
  CHECK(spec.embedding_scale == 1.0);
  CHECK(spec.decoder_start_token == 2);
  CHECK(spec.lm_head_bias == "final_logits_bias");
  CHECK(spec.denoising == Denoising::kTextInfilling);
  CHECK(spec.layers[1].cross_attention.k.bias == "model.decoder.layers.1.encoder_attn.k_proj.bias");
  CHECK(bart_spec("bart_copies", /*unused=*/3).lm_head.empty());
}

TEST_CASE("a BART saved without its head has no prefix", "[formats]") {
  TinyModel bare = golden_model("bart");
  bare.remove("final_logits_bias");
  for (BuiltTensor& tensor : bare.tensors) {
    tensor.name.erase(0, std::string_view("model.").size());
  }
  const ModelSpec spec = spec_of(bare);
  CHECK(spec.token_embedding == "shared.weight");
  CHECK(spec.encoder_position_embedding == "encoder.embed_positions.weight");
  CHECK(spec.layers[1].cross_attention.q.weight == "decoder.layers.1.encoder_attn.q_proj.weight");
  CHECK(spec.lm_head_bias.empty());
  CHECK(spec.constant_tensors.empty());
}

TEST_CASE("mBART has norms before attention and MLP and at the end of both stacks", "[formats]") {
  const ModelSpec spec = bart_spec("mbart");
  CHECK(spec.norm_placement == NormPlacement::kBefore);
  CHECK(spec.encoder_final_norm.weight == "model.encoder.layer_norm.weight");
  CHECK_THAT(spec.embedding_scale, WithinRel(std::sqrt(18.0), 1e-12));
}

TEST_CASE("Marian, M2M100 and Pegasus have sinusoidal positions, stored or not", "[formats]") {
  const ModelSpec marian = bart_spec("marian"), m2m = bart_spec("m2m_100");
  CHECK(marian.positions == PositionKind::kSinusoidal);
  CHECK(marian.sinusoids.steps == 9);
  CHECK(marian.position_offset == 0);
  CHECK(marian.position_embedding.empty());
  CHECK(marian.activation == Activation::kSilu);
  CHECK(marian.denoising == Denoising::kNone);
  CHECK(m2m.sinusoids.steps == 8);
  CHECK(m2m.position_offset == 2);
  CHECK(m2m.activation == Activation::kRelu);
  CHECK(m2m.lm_head_bias.empty());
  for (const char* name : {"marian_tables", "pegasus"}) {
    const ModelSpec stored = bart_spec(name);
    CHECK(stored.position_embedding == "model.decoder.embed_positions.weight");
    CHECK(stored.encoder_position_embedding == "model.encoder.embed_positions.weight");
    CHECK(stored.constant_tensors.size() == 3);  // and final_logits_bias
  }
}

TEST_CASE("Whisper has no bias of keys and reads spectra", "[formats]") {
  const ModelSpec spec = bart_spec("whisper");
  CHECK(spec.spectrum.bands == 6);
  CHECK(spec.spectrum.positions == 8);
  CHECK(spec.max_positions == 16);
  CHECK(spec.layers[0].attention.k.bias.empty());
  CHECK(spec.layers[0].attention.v.bias == "model.decoder.layers.0.self_attn.v_proj.bias");
  CHECK(spec.kv_heads_key_of(AttentionRole::kCross).back() == "cross_kv_heads");
  CHECK_FALSE(spec.not_computable.empty());
}

TEST_CASE("BART-like configs that cannot hold, or that another block is needed for, are refused",
          "[formats]") {
  const auto refusal = [](const char* name, const char* key, const char* value) {
    const TemporaryDirectory directory;
    put_model(directory.path(), golden_model(name).set(key, value));
    return refusal_of([&] { open_model(directory.path()); });
  };
  CHECK_THAT(refusal("bart", "decoder_attention_heads", "3"),
             is_bad_input("encoder_attention_heads is 6", "decoder_attention_heads is 3"));
  CHECK_THAT(refusal("bart", "decoder_layers", "1000000"), is_bad_input("decoder_layers"));
  CHECK_THAT(refusal("bart", "encoder_layers", "-1"), is_bad_input("encoder_layers"));
  CHECK_THAT(refusal("m2m_100", "pad_token_id", "40"), is_bad_input("pad_token_id"));
  CHECK_THAT(refusal("marian", "max_position_embeddings", "null"),
             is_bad_input("max_position_embeddings"));
  const auto obstacle = [](const char* name, const char* key, const char* value) {
    const TemporaryDirectory directory;
    put_model(directory.path(), golden_model(name).set(key, value));
    return open_model(directory.path()).spec.not_computable;
  };
  CHECK(obstacle("bart", "normalize_before", "false").empty());
  CHECK(obstacle("bart", "normalize_before", "true") == "normalize_before = true");
  CHECK(obstacle("mbart", "normalize_before", "true").empty());
  CHECK(obstacle("pegasus", "add_final_layer_norm", "false") == "add_final_layer_norm = false");
  CHECK(obstacle("bart", "tie_word_embeddings", "false") == "tie_word_embeddings = false");
  CHECK(obstacle("marian", "share_encoder_decoder_embeddings", "false") ==
        "share_encoder_decoder_embeddings = false");
}

TEST_CASE("sinusoidal positions need an even hidden size above 2", "[formats]") {
  const auto refused = [](const char* name, int width) {
    const Json config = {{"model_type", name},           {"d_model", width},
                         {"encoder_layers", 1},          {"decoder_layers", 1},
                         {"encoder_attention_heads", 1}, {"decoder_attention_heads", 1},
                         {"encoder_ffn_dim", 4},         {"decoder_ffn_dim", 4},
                         {"max_position_embeddings", 8}, {"vocab_size", 9}};
    return refusal_of([&] { describe_model(config, Checkpoint({}), "config.json"); });
  };
  CHECK_THAT(refused("m2m_100", 2), is_bad_input("d_model is 2", "even"));
  CHECK_THAT(refused("marian", 5), is_bad_input("d_model is 5"));
}

}  // namespace
}  // namespace regroup

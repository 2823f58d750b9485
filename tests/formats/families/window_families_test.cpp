// Families with a sliding window in some of their layers.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/families/family.h"
#include "formats/families/gguf_model.h"
#include "formats/model/model.h"
#include "formats/model/serving_cost.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Settings = std::vector<std::pair<const char*, std::string>>;

TinyModel with_settings(const char* name, const Settings& settings) {
  TinyModel model = golden_model(name);
  for (const auto& [key, value] : settings) {
    model.set(key, value);
  }
  return model;
}

ModelSpec changed_spec(const char* name, const Settings& settings) {
  const TemporaryDirectory directory;
  return open_model(put_model(directory.path(), with_settings(name, settings))).spec;
}

Error refusal_with(const char* name, const Settings& settings) {
  const TemporaryDirectory directory;
  put_model(directory.path(), with_settings(name, settings));
  return refusal_of([&] { open_model(directory.path()); });
}

// 's' for each layer with the window, 'f' for each without.
std::string kinds_in(const ModelSpec& spec) {
  std::string kinds;
  for (const LayerTensors& layer : spec.layers) {
    kinds += spec.window_of(layer) ? 's' : 'f';
  }
  return kinds;
}

TEST_CASE("each family has its window in the layers that its config names", "[formats]") {
  CHECK(kinds_in(open_model(golden("olmo3")).spec) == "sssf");
  CHECK(kinds_in(open_model(golden("gpt_neo")).spec) == "fss");
  CHECK(kinds_in(open_model(golden("gemma2")).spec) == "sfs");
  CHECK(kinds_in(open_model(golden("gemma3")).spec) == "sfs");
  CHECK(kinds_in(open_model(golden("cohere2")).spec) == "sssf");
  CHECK(kinds_in(open_model(golden("qwen2_windows")).spec) == "fss");
  const ModelSpec whole =
      changed_spec("olmo3", {{"layer_types", R"(["full_attention", "full_attention",
                                                 "full_attention", "full_attention"])"}});
  CHECK_FALSE(whole.sliding_window);
  CHECK_FALSE(whole.window_rope);
  CHECK(kinds_in(changed_spec("olmo3", {{"layer_types", "null"}})) == "sssf");
  CHECK(changed_spec("olmo3", {{"sliding_window", "7"}}).sliding_window == 7);
}

TEST_CASE("Gemma's gelu is the tanh form, and other activations are what they say", "[formats]") {
  const auto activation = [](const char* stated) {
    return changed_spec("gemma", {{"hidden_act", stated}}).activation;
  };
  CHECK(activation(R"("gelu")") == Activation::kGeluTanh);
  CHECK(activation("null") == Activation::kGeluTanh);
  CHECK(activation(R"("silu")") == Activation::kSilu);
}

TEST_CASE("a Mistral with layer_types has its window in these layers, as Ministral", "[formats]") {
  const auto kinds = [](const char* types) {
    return kinds_in(changed_spec("mistral", {{"layer_types", types}, {"sliding_window", "8"}}));
  };
  CHECK(kinds("null") == "sss");
  CHECK(kinds(R"(["full_attention", "sliding_attention", "full_attention"])") == "fsf");
  CHECK(kinds(R"(["full_attention", "full_attention", "full_attention"])") == "fff");
  const char* sliding = R"(["sliding_attention", "sliding_attention", "sliding_attention"])";
  CHECK(kinds(sliding) == "sss");
  CHECK_FALSE(changed_spec("mistral", {{"layer_types", sliding}, {"sliding_window", "null"}})
                  .sliding_window);
}

TEST_CASE("only full layers of an OLMo-3 have scaled RoPE", "[formats]") {
  const ModelSpec spec = open_model(golden("olmo3")).spec;
  CHECK(spec.rope_of(spec.layers[3]).scaling.kind == RopeScaling::Kind::kYarn);
  CHECK(spec.rope_of(spec.layers[0]).scaling.kind == RopeScaling::Kind::kNone);
  // The keys of transformers 4.
  const ModelSpec older =
      changed_spec("olmo3", {{"rope_parameters", "null"},
                             {"rope_theta", "500000"},
                             {"rope_scaling", R"({"rope_type": "yarn", "factor": 4.0,
                                     "original_max_position_embeddings": 8})"}});
  CHECK(older.not_computable.empty());
  CHECK(older.rope.scaling == spec.rope.scaling);
  const auto with_beta = [](const char* beta) {
    return changed_spec("olmo3", {{"rope_parameters", "null"},
                                  {"rope_theta", "500000"},
                                  {"rope_scaling", fmt::format(R"({{"rope_type": "yarn",
                                     "factor": 4.0, "beta_slow": {},
                                     "original_max_position_embeddings": 8}})",
                                                               beta)}});
  };
  CHECK(with_beta("0").rope.scaling == spec.rope.scaling);  // as transformers
  CHECK_THAT(refusal_of([&] { with_beta("-1"); }), is_bad_input("beta_slow", "positive"));
  REQUIRE(older.window_rope);
  CHECK(older.window_rope->scaling == RopeScaling{});
  CHECK(older.window_rope->theta == 500000.0);
  const ModelSpec plain =
      changed_spec("olmo3", {{"rope_parameters", "null"}, {"rope_theta", "500000"}});
  CHECK_FALSE(plain.window_rope);  // the same in all layers
  CHECK(changed_spec("olmo3", {{"rope_parameters", "null"}, {"rope_theta", "10000"}})
            .not_computable == "rope_theta, which transformers 4 and 5 read differently");
}

TEST_CASE("a Gemma 3 reads its older and newer keys alike", "[formats]") {
  const ModelSpec older = open_model(golden("gemma3")).spec;
  const ModelSpec newer = changed_spec(
      "gemma3", {{"rope_theta", "null"},
                 {"rope_local_base_freq", "null"},
                 {"rope_scaling", "null"},
                 {"sliding_window_pattern", "null"},
                 {"layer_types", R"(["sliding_attention", "full_attention", "sliding_attention"])"},
                 {"rope_parameters",
                  R"({"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000},
                      "sliding_attention": {"rope_type": "default", "rope_theta": 100}})"}});
  CHECK(newer.rope == older.rope);
  CHECK(newer.window_rope == older.window_rope);
  CHECK(kinds_in(newer) == kinds_in(older));
  CHECK(older.rope.scaling.kind == RopeScaling::Kind::kLinear);
  CHECK(older.window_rope->theta == 100.0);
}

TEST_CASE("the language model inside a Gemma 3 has its class's values for absent keys",
          "[formats]") {
  const Json config = Json::parse(R"({"model_type": "gemma3",
      "architectures": ["Gemma3ForConditionalGeneration"],
      "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                      "num_hidden_layers": 12, "sliding_window": 1024,
                      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
      "vision_config": {"hidden_size": 1152}})");
  const ModelSpec spec = describe_model(config, Checkpoint({}), "config.json");
  CHECK(spec.query_heads == 8);
  CHECK(spec.head_dim == 256);
  CHECK(spec.kv_heads.front() == 4);
  CHECK(spec.vocab_size == 262208);
  CHECK(kinds_in(spec) == "sssssfsssssf");
  CHECK(spec.rope.theta == 1e6);
  CHECK(spec.window_rope->theta == 1e4);
  CHECK(spec.not_computable.empty());
}

TEST_CASE("Gemma 2 caps scores and logits unless its config says null", "[formats]") {
  const ModelSpec spec = open_model(golden("gemma2")).spec;
  CHECK(spec.attention_softcap == 2.0);
  CHECK(spec.logit_softcap == 5.0);
  CHECK_FALSE(changed_spec("gemma2", {{"attn_logit_softcapping", "null"}}).attention_softcap);
  CHECK_FALSE(open_model(golden("gemma3")).spec.logit_softcap);
  CHECK(changed_spec("gemma3", {{"attn_logit_softcapping", "50"}}).not_computable ==
        "attn_logit_softcapping, which transformers ignores");
  CHECK(changed_spec("gemma2", {{"use_bidirectional_attention", "true"}}).not_computable ==
        "use_bidirectional_attention");
}

TEST_CASE("llama.cpp's graphs compute windows in some layers up to the window only", "[formats]") {
  const auto refusal = [](const char* name) {
    return refusal_of([&] { gguf_metadata_for(open_model(golden(name)).spec); });
  };
  CHECK_THAT(refusal("gemma2"), is_wrong_usage("gemma: norms in other places"));
  CHECK_THAT(refusal("gemma3"), is_wrong_usage("another RoPE in layers with a sliding window"));
  CHECK_THAT(refusal("olmo3"), is_wrong_usage("another RoPE in layers with a sliding window"));
  CHECK_THAT(refusal("cohere2"), is_wrong_usage("RoPE missing from layer 3"));
  CHECK_THAT(refusal("gpt_neo"), is_wrong_usage("no graph of llama.cpp"));
  CHECK_THAT(refusal("xglm"), is_wrong_usage("no graph of llama.cpp"));
  const ModelSpec spec = open_model(golden("qwen2_windows")).spec;
  CHECK(gguf_metadata_for(spec).count("qwen2.context_length") == 5);
  ModelSpec capped = open_model(golden("gemma")).spec;
  capped.logit_softcap = 30.0;
  CHECK_THAT(refusal_of([&] { gguf_metadata_for(capped); }), is_wrong_usage("soft-capped"));
}

TEST_CASE("a Gemma 2 cannot become an ALiBi model", "[formats]") {
  ModelSpec spec = open_model(golden("gemma2")).spec;
  CHECK_THAT(refusal_of([&] { use_alibi(spec); }), is_wrong_usage("soft-capped scores"));
  spec = open_model(golden("olmo3")).spec;
  use_alibi(spec);
  CHECK_FALSE(spec.window_rope);
}

TEST_CASE("settings of windows and caps that make no sense are refused", "[formats]") {
  for (const char* types : {R"(["sliding_attention"])", R"("sliding_attention")",
                            R"(["full_attention", "chunked_attention", "full_attention"])"}) {
    CHECK_THAT(refusal_with("gemma2", {{"layer_types", types}}),
               is_bad_input("layer_types must list", "3 layers"));
  }
  CHECK_THAT(refusal_with("gemma2", {{"sliding_window", "null"}}),
             is_bad_input("sliding_window is null"));
  CHECK_THAT(refusal_with("gemma2", {{"sliding_window", "0"}}),
             is_bad_input("sliding_window is 0"));
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    CHECK_THAT(refusal_with("gemma2", {{key, "0"}}), is_bad_input("a positive number is needed"));
  }
  CHECK_THAT(refusal_with("gemma2", {{"query_pre_attn_scalar", "-4"}}),
             is_bad_input("query_pre_attn_scalar is -4"));
  CHECK_THAT(refusal_with("olmo3", {{"rope_parameters", R"({"rope_theta": 300})"}}),
             is_bad_input("full_attention and sliding_attention"));
  for (const char* types :
       {R"([[["global"], 2]])", R"([[["global"], 4]])", R"([[["global", "local"], 2]])",
        R"([[["sparse"], 3]])", R"([["global", 3]])", R"([[[], 3]])", R"([[["global"], -3]])",
        R"([[["global"], 18446744073709551615]])", "3"}) {
    CAPTURE(types);
    CHECK_THAT(refusal_with("gpt_neo", {{"attention_types", types}}),
               is_bad_input("attention_types must list patterns"));
  }
}

TEST_CASE("a cache of some layers with a window grows by the others only", "[formats]") {
  const ModelSpec spec = open_model(golden("olmo3")).spec;  // three of four layers, a window of 5
  const KvCacheCost cost = kv_cache_cost(spec, DType::kF32).value();
  const std::uint64_t layer = 2 * 6 * 4 * 4;
  CHECK(cost.per_token() == 4 * layer);
  CHECK(cost.unlimited == layer);
  CHECK(cost.at(5) == 5 * 4 * layer);
  CHECK(cost.at(100) == (3 * 5 + 100) * layer);
}

}  // namespace
}  // namespace regroup

// Which models are refused or not computed, and the reasons that are given.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "formats/families/unknown_architecture.h"
#include "formats/model/model_directory.h"
#include "formats/spec/alibi.h"
#include "tests/file_tree.h"
#include "tests/formats/families/described_model.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

TEST_CASE("one stack of an encoder-decoder is refused as such", "[formats]") {
  const std::string absent = GENERATE("encoder", "decoder");
  const std::string present = absent == "encoder" ? "decoder" : "encoder";
  TinyModel model = golden_model(GENERATE("t5_v1_1", "bart"));
  std::erase_if(model.tensors, [&](const BuiltTensor& tensor) {
    return tensor.name.find(absent + ".") != std::string::npos;
  });
  const TemporaryDirectory directory;
  const ModelDirectory opened = open_model_directory(put_model(directory.path(), model));
  CHECK_THAT(refusal_of([&] { check_tensors(spec_of(model), opened.checkpoint); }),
             is_bad_input("has only the " + present, "take the whole model"));
}

TEST_CASE("an unknown architecture is refused with the nearest known and how to describe it",
          "[formats]") {
  TinyModel model = tiny_llama();
  const auto refused_like = [&](const char* type, const char* nearest) {
    model.set("model_type", Json(type).dump());
    CHECK_THAT(refusal_of_model(model),
               is_bad_input("config.json: unknown architecture", type, nearest, "docs/layout.md"));
  };
  refused_like("ministral", "(nearest known: mistral)");
  refused_like("qwen2_audio_lm", "(nearest known: qwen2)");
  refused_like("gpt_neo_x", "(nearest known: gpt_neox)");
  refused_like("xyzzy", "xyzzy;");
  model.set("model_type", "null").set("architectures", "[\"Olmo2MoeForCausalLM\"]");
  CHECK_THAT(refusal_of_model(model), is_bad_input("(nearest known: olmo2)"));
  model.config = "{}";
  CHECK_THAT(refusal_of_model(model), is_bad_input("config.json", "unknown architecture none"));
  model.set("architectures", "[\"\\u001b[2J\"]");
  CHECK_THAT(refusal_of_model(model), is_bad_input("config.json", R"(\x1b[2J)"));
  model.set("architectures", Json::array({std::string(5000, 'F')}).dump());
  CHECK(std::string_view(refusal_of_model(model).what()).size() <= 160);
}

TEST_CASE("models without heads of keys and values are refused with the reason", "[formats]") {
  TinyModel model = tiny_llama();
  for (const OtherAttention& other : other_attentions()) {
    for (const std::string_view type : other.model_types) {
      model.set("model_type", Json(type).dump());
      const Error refusal = refusal_of_model(model);
      CHECK_THAT(refusal, is_bad_input("config.json", type, other.reason));
      CHECK(std::string_view(refusal.what()).size() <= 160);
    }
    for (const std::string_view key : other.config_keys) {
      TinyModel unknown = tiny_llama();
      unknown.set("model_type", "\"xyzzy\"").set(std::string(key), "16");
      CHECK_THAT(refusal_of_model(unknown), is_bad_input("config.json", "xyzzy", other.reason));
    }
  }
  model.set("model_type", "null").set("architectures", "[\"DeepseekV3ForCausalLM\"]");
  CHECK_THAT(refusal_of_model(model), is_bad_input("DeepseekV3ForCausalLM", "latent"));
}

TEST_CASE("Command-R, Granite and SmolLM3 with settings that cannot hold are refused",
          "[formats]") {
  CHECK_THAT(refusal_of_model(golden_model("cohere").set("use_qk_norm", "true")),
             is_bad_input("config.json", "use_qk_norm", "norm of its own"));
  CHECK_THAT(refusal_of_model(golden_model("granite").set("logits_scaling", "0")),
             is_bad_input("config.json", "logits_scaling is 0"));
  for (const char* layers : {"[1, 1, 1]", "[1, 1, 1, 2]", "[true, true, true, true]", "4"}) {
    CHECK_THAT(refusal_of_model(golden_model("smollm3").set("no_rope_layers", layers)),
               is_bad_input("config.json", "no_rope_layers", "4 layers"));
  }
  TinyModel sliding = golden_model("smollm3").set("use_sliding_window", "true");
  sliding.set("sliding_window", "5");
  const TemporaryDirectory directory;
  const ModelSpec spec = spec_of(open_model_directory(put_model(directory.path(), sliding)));
  for (const LayerTensors& layer : spec.layers) {
    CHECK(spec.window_of(layer).has_value() == layer.without_rope);
  }
}

TEST_CASE("mixtures of experts with settings that cannot hold are refused", "[formats]") {
  const auto refusal = [](const char* name, const char* key, const char* value) {
    return refusal_of_model(golden_model(name).set(key, value));
  };
  CHECK_THAT(refusal("olmoe", "num_experts_per_tok", "7"), is_bad_input("config.json", "7 of 6"));
  CHECK_THAT(refusal("olmoe", "num_experts", "2000000000"), is_bad_input("config.json", "16384"));
  CHECK_THAT(refusal("olmoe", "num_experts", "16000"),
             is_bad_input("config.json", "16000 experts in 2 layers", "tensors"));
  CHECK_THAT(refusal("olmoe", "router_aux_loss_coef", "-1"), is_bad_input("router_aux_loss_coef"));
  CHECK_THAT(refusal("qwen2_moe", "mlp_only_layers", "3"), is_bad_input("mlp_only_layers"));
  CHECK_THAT(refusal("deepseek", "num_experts_per_tok", "null"),
             is_bad_input("num_experts_per_tok"));
  const auto fits = [](const char* name, const char* key, const char* value) {
    const TemporaryDirectory directory;
    const ModelDirectory model =
        open_model_directory(put_model(directory.path(), golden_model(name).set(key, value)));
    return refusal_of([&] { check_all_shapes(spec_of(model), model.checkpoint); });
  };
  CHECK_THAT(fits("olmoe", "num_experts", "5"), is_bad_input("do not fit", "mlp.gate.weight"));
  CHECK_THAT(fits("mixtral_stacked", "num_local_experts", "3"),
             is_bad_input("do not fit", "gate_up_proj"));
  CHECK_THAT(fits("qwen2_moe", "shared_expert_intermediate_size", "12"),
             is_bad_input("do not fit", "shared_expert"));
  const TemporaryDirectory directory;
  const auto reason = [&](const char* name, const char* key, const char* value) {
    return spec_of(open_model_directory(
                       put_model(directory.path(), golden_model(name).set(key, value))))
        .not_computable;
  };
  CHECK(reason("deepseek", "scoring_func", "\"sigmoid\"") == "scoring_func sigmoid");
  TinyModel sliding =
      golden_model("qwen2_moe").set("use_sliding_window", "true").set("sliding_window", "5");
  CHECK(
      spec_of(open_model_directory(put_model(directory.path(), sliding.set("layer_types", "null"))))
          .not_computable == "use_sliding_window without layer_types");
}

TEST_CASE("impossible config values are refused with their key", "[formats]") {
  const auto refusal_with = [](const std::string& key, std::string_view value) {
    return refusal_of_model(tiny_llama().set(key, value));
  };
  for (const std::string_view value : {"0", "-6", "6.0", "\"6\"", "true", "[6]", "{}", "2147483648",
                                       "18446744073709551615", "1e99"}) {
    CAPTURE(value);
    CHECK_THAT(refusal_with("hidden_size", value),
               is_bad_input("config.json", "hidden_size", "whole"));
    CHECK_THAT(refusal_with("num_hidden_layers", value),
               is_bad_input("config.json", "num_hidden_layers"));
  }
  CHECK_THAT(refusal_with("hidden_size", "null"),
             is_bad_input("config.json", "hidden_size is missing"));
  CHECK_THAT(refusal_with("num_hidden_layers", "2147483647"),
             is_bad_input("num_hidden_layers", "2147483647", "tensors"));
  CHECK_THAT(refusal_with("num_attention_heads", "2147483647"),
             is_bad_input("num_attention_heads", "at most"));
  CHECK_THAT(refusal_with("rms_norm_eps", "\"tiny\""), is_bad_input("rms_norm_eps", "number"));
  CHECK_THAT(refusal_with("attention_bias", "1"), is_bad_input("attention_bias", "true or false"));
  CHECK_THAT(refusal_with("hidden_act", "\"sine\""), is_bad_input("config.json", "sine", "silu"));
  CHECK_THAT(refusal_with("rope_scaling", "\"linear\""), is_bad_input("rope_scaling", "object"));
  CHECK_THAT(refusal_with("model_type", "7"), is_bad_input("model_type", "string"));
}

TEST_CASE("a hidden size that the heads do not divide needs a head_dim", "[formats]") {
  TinyModel model = tiny_llama();
  model.set("head_dim", "null");
  CHECK_THAT(refusal_of_model(model), is_bad_input("config.json", "6", "12 heads", "head_dim"));
  CHECK_THAT(refusal_of_model(tiny_gpt2().set("n_head", "7")), is_bad_input("24", "7 heads"));
}

TEST_CASE("kv heads that do not divide the query heads are refused", "[formats]") {
  for (const std::string_view value :
       {"5", "24", "0", "-4", "\"4\"", "4.0", "[4]", "[4,4,4]", "[4,5]", "[4,0.5]"}) {
    CAPTURE(value);
    CHECK_THAT(refusal_of_model(tiny_llama().set("num_key_value_heads", value)),
               is_bad_input("config.json", "num_key_value_heads"));
  }
}

TEST_CASE("all attention tensors that disagree with the config are listed", "[formats]") {
  CHECK_THAT(refusal_of_model(tiny_llama().set("head_dim", "4")),
             is_bad_input("model.layers.0.self_attn.q_proj.weight is [24, 6]",
                          "the config says [48, 6]", "model.layers.0.self_attn.v_proj.weight"));
}

TEST_CASE("a wrong number of kv heads in the config is told as such", "[formats]") {
  CHECK_THAT(refusal_of_model(tiny_llama().set("num_key_value_heads", "4")),
             is_bad_input("every layer: the config says 4 kv heads, the tensors hold 12"));
}

TEST_CASE("layers without K or V are listed", "[formats]") {
  TinyModel model = tiny_llama();
  model.remove("model.layers.1.self_attn.v_proj.weight");
  model.remove("model.layers.0.self_attn.k_proj.weight");
  CHECK_THAT(refusal_of_model(model),
             is_bad_input("model.layers.1.self_attn.v_proj.weight is missing",
                          "model.layers.0.self_attn.k_proj.weight is missing"));
  TinyModel fused = tiny_bloom();
  fused.remove("transformer.h.1.self_attention.query_key_value.bias");
  CHECK_THAT(refusal_of_model(fused),
             is_bad_input("transformer.h.1.self_attention.query_key_value.bias is missing"));
}

TEST_CASE("a long list of faults is truncated and counted", "[formats]") {
  TinyModel model = tiny_llama({.layers = 9});
  model.tensors.resize(1);
  for (int i = 0; i < 9; ++i) {
    model.tensors.push_back(varied_tensor("filler" + std::to_string(i), DType::kF32, {1}));
  }
  CHECK_THAT(refusal_of_model(model), is_bad_input("is missing", "and 32 more"));
}

TEST_CASE("models that regroup converts but cannot compute say why", "[formats]") {
  const TemporaryDirectory directory;
  const auto reason = [&](const TinyModel& tiny) {
    return spec_of(open_model_directory(put_model(directory.path(), tiny))).not_computable;
  };
  CHECK(reason(tiny_llama().set("rope_scaling", R"({"type": "axial", "factor": 2.0})")) ==
        "rope_type axial");
  CHECK(reason(tiny_llama().set("rope_scaling", R"({"type": "\u001b[2J"})")) ==
        R"(rope_type \x1b[2J)");
  CHECK(reason(tiny_llama().set(
            "rope_parameters", R"({"rope_type": "xpos", "rope_theta": 9.0})")) == "rope_type xpos");
  CHECK(reason(tiny_gpt2().set("scale_attn_by_inverse_layer_idx", "true")) ==
        "scale_attn_by_inverse_layer_idx = true");
  const auto golden_reason = [&](const char* name, const char* key, const char* value) {
    return reason(golden_model(name).set(key, value));
  };
  CHECK(golden_reason("falcon_rw", "apply_residual_connection_post_layernorm", "true") ==
        "apply_residual_connection_post_layernorm = true");
  CHECK(golden_reason("gpt_bigcode", "add_cross_attention", "true") ==
        "add_cross_attention = true");
  CHECK(golden_reason("mpt", "norm_type", "\"rmsnorm\"") == "norm_type rmsnorm");
  CHECK(golden_reason("mpt", "attn_config", R"({"alibi": true, "rope": true})") ==
        "attn_config.rope = true");
  CHECK(golden_reason("mpt", "attn_config", R"({"sliding_window_size": 64})") ==
        "attn_config.sliding_window_size");
  CHECK(golden_reason("mpt", "attn_config", R"({"sliding_window_size": -1})").empty());
}

TEST_CASE("a GPT-J whose rotary_dim is null is refused", "[formats]") {
  CHECK_THAT(refusal_of_model(golden_model("gptj").set("rotary_dim", "null")),
             is_bad_input("config.json", "rotary_dim"));
}

TEST_CASE("a RoPE scaling without a factor is refused", "[formats]") {
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(put_model(
      directory.path(),
      tiny_llama().set("rope_parameters", R"({"rope_type": "yarn", "rope_theta": 9.0})")));
  CHECK_THAT(refusal_of([&] { describe_model(model.config, model.checkpoint, "config.json"); }),
             is_bad_input("config.json", "scaling factor"));
}

}  // namespace
}  // namespace regroup

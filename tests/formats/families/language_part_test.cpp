// Language models inside other models: which config keys and which tensors are theirs.
#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_summary.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Path = std::vector<std::string>;

// Sets a member of the language model's own object.
TinyModel with_text(TinyModel model, const std::string& key, std::string_view value) {
  model.config = with_member(model.config, {"text_config", key}, value);
  return model;
}

TinyModel without_text(TinyModel model, const std::string& key) {
  Json config = parse_json_object(model.config, "config.json");
  config["text_config"].erase(key);
  model.config = config.dump();
  return model;
}

Error refusal_to_open(const TinyModel& tiny) {
  const TemporaryDirectory directory;
  put_model(directory / "model", tiny);
  return refusal_of([&] {
    const Model model = open_model(directory / "model");
    check_attention_shapes(model.spec, model.checkpoint);
  });
}

// The same tensors with another beginning of their names.
TinyModel with_prefix_renamed(TinyModel model, std::string_view before, const std::string& after) {
  for (BuiltTensor& tensor : model.tensors) {
    if (tensor.name.starts_with(before)) {
      tensor.name = after + tensor.name.substr(before.size());
    }
  }
  return model;
}

TEST_CASE("a language model's tensors and config keys are found inside other models", "[formats]") {
  struct Expected {
    const char* name;
    const char* whole;
    const char* layer;
    Path kv_heads_key;
  };
  for (const Expected& expected :
       {Expected{"llava",
                 "llava",
                 "language_model.model.layers.1.",
                 {"text_config", "num_key_value_heads"}},
        Expected{"qwen2_5_vl", "qwen2_5_vl", "model.layers.1.", {"num_key_value_heads"}},
        Expected{"qwen3_vl",
                 "qwen3_vl",
                 "model.language_model.layers.1.",
                 {"text_config", "num_key_value_heads"}}}) {
    CAPTURE(expected.name);
    const Model model = open_model(golden(expected.name));
    const ModelSpec& spec = model.spec;
    CHECK(spec.whole_model == expected.whole);
    CHECK(spec.kv_heads_key == expected.kv_heads_key);
    CHECK(spec.layers[1].attention.k.weight ==
          std::string(expected.layer) + "self_attn.k_proj.weight");
    CHECK(spec.not_computable.empty());
    CHECK(spec.loaders_read_kv_heads);
    check_all_shapes(spec, model.checkpoint);
    // The others are those of the vision tower and the projector.
    const auto& tensors = model.checkpoint.tensors();
    const auto parts = parts_of(spec);
    CHECK(std::all_of(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) {
      const bool seen = tensor.name.find("visual") != std::string::npos ||
                        tensor.name.find("vision") != std::string::npos ||
                        tensor.name.find("multi_modal") != std::string::npos;
      const bool read = std::any_of(parts.begin(), parts.end(),
                                    [&](const auto& part) { return part.first == tensor.name; });
      return seen != read;
    }));
  }
}

TEST_CASE("RoPE with a section for each direction is RoPE in text", "[formats]") {
  CHECK((spec_of(golden_model("qwen2_5_vl")).rope.scaling.kind == RopeScaling::Kind::kNone));
  const TinyModel other =
      golden_model("qwen2_5_vl").set("rope_scaling", R"({"type": "xrope", "mrope_section": [4]})");
  CHECK(spec_of(other).not_computable == "rope_type xrope");
}

TEST_CASE("a language model's short config has its class's sizes", "[formats]") {
  TinyModel model = golden_model("llava");
  model.set("text_config", R"({"model_type": "llama"})");
  const Model outline = [&] {
    const TemporaryDirectory directory;
    put_model(directory / "model", model);
    std::filesystem::remove(directory / "model" / "model.safetensors");
    return open_model_outline(directory / "model");
  }();
  CHECK(outline.spec.layer_count() == 32);
  CHECK(outline.spec.hidden_size == 4096);
  CHECK(outline.spec.vocab_size == 32000);
  CHECK(outline.spec.intermediate_size == 11008);
  // The language model's class has them in whatever model it is. Other classes' are not known.
  model.set("model_type", "\"xyzzy\"");
  CHECK_THAT(refusal_to_open(model), is_bad_input("text_config", "num_hidden_layers is 32"));
  model.set("text_config", R"({"model_type": "cohere"})");
  CHECK_THAT(refusal_to_open(model), is_bad_input("text_config", "hidden_size is missing"));
}

TEST_CASE("a language model whose config names no type has that of the whole model's class",
          "[formats]") {
  CHECK(spec_of(without_text(golden_model("llava"), "model_type")).family == "llama");
  TinyModel unknown = without_text(golden_model("llava"), "model_type");
  CHECK_THAT(refusal_to_open(unknown.set("model_type", "\"xyzzy\"")),
             is_bad_input("text_config", "unknown architecture none"));
}

TEST_CASE("a whole model that is not known is read but not computed", "[formats]") {
  const ModelSpec spec = spec_of(golden_model("llava").set("model_type", "\"xyzzy\""));
  CHECK(spec.whole_model == "xyzzy");
  CHECK(spec.not_computable == "a part of xyzzy, whose computation of text is not known");
}

TEST_CASE("the first LLaVA's keys are at the top, and its tensors have a Llama's names",
          "[formats]") {
  TinyModel model = tiny_llama();
  model.set("architectures", R"(["LlavaLlamaForCausalLM"])");
  for (const char* type : {"\"llava\"", "\"llava_llama\"", "\"llava_mistral\""}) {
    CAPTURE(type);
    const ModelSpec spec = spec_of(model.set("model_type", type));
    CHECK(spec.kv_heads_key == Path{"num_key_value_heads"});
    CHECK(spec.layers[0].attention.k.weight == "model.layers.0.self_attn.k_proj.weight");
    CHECK(spec.not_computable.find("code of its own") != std::string::npos);
  }
}

TEST_CASE("whether the output is tied is the whole model's setting, otherwise the tensors'",
          "[formats]") {
  const TinyModel model = golden_model("llava");
  CHECK(spec_of(model).lm_head == "language_model.lm_head.weight");
  TinyModel tied = TinyModel(model).set("tie_word_embeddings", "true");
  CHECK(spec_of(tied).tied_head == "language_model.lm_head.weight");
  CHECK(spec_of(tied).lm_head == "language_model.lm_head.weight");  // it differs
  tied.remove("language_model.lm_head.weight");
  CHECK(spec_of(tied).lm_head.empty());
  const TinyModel silent = TinyModel(model).set("tie_word_embeddings", "null");
  CHECK(spec_of(with_text(silent, "tie_word_embeddings", "true")).lm_head ==
        "language_model.lm_head.weight");
}

TEST_CASE("a language model's config may have only what differs from its class", "[formats]") {
  const auto outline = [](const char* whole, const char* text) {
    const TemporaryDirectory directory;
    write_text(directory / "config.json",
               fmt::format(R"({{"model_type": "{}", "text_config": {}}})", whole, text));
    return open_model_outline(directory.path()).spec;
  };
  const ModelSpec qwen = outline("internvl", R"({"model_type": "qwen3", "num_hidden_layers": 3,
      "num_key_value_heads": 8})");
  CHECK(qwen.layers.size() == 3);
  CHECK(qwen.query_heads == 32);
  CHECK(qwen.kv_heads == std::vector<std::int64_t>{8, 8, 8});
  CHECK(qwen.head_dim == 128);
  CHECK(outline("llava", R"({"model_type": "gemma"})").kv_heads.front() == 16);
  CHECK(outline("llava", R"({"model_type": "phi3"})").hidden_size == 3072);
  CHECK(outline("idefics2", R"({"model_type": "mistral"})").kv_heads.front() == 8);
}

TEST_CASE("an output that is not stored is tied if either config or the class says so",
          "[formats]") {
  TinyModel model = golden_model("llava");
  model.remove("language_model.lm_head.weight");
  const auto tied = [&](const char* type, const char* whole, const char* text) {
    TinyModel changed = with_text(model, "tie_word_embeddings", text);
    changed.set("model_type", type).set("tie_word_embeddings", whole);
    return spec_of(changed).lm_head.empty();
  };
  CHECK(tied("\"llava\"", "false", "true"));
  CHECK(tied("\"llava\"", "true", "false"));
  CHECK_FALSE(tied("\"llava\"", "null", "null"));
  CHECK(tied("\"mistral3\"", "null", "null"));
  CHECK(tied("\"internvl\"", "null", "false"));
  CHECK_FALSE(tied("\"internvl\"", "false", "null"));
}

TEST_CASE("a repeated number of kv heads has to agree with the first", "[formats]") {
  TinyModel model = golden_model("llava");
  CHECK(spec_of(model.set("num_key_value_heads", "6")).kv_heads_copies ==
        std::vector<Path>{{"num_key_value_heads"}});
  CHECK_THAT(refusal_to_open(model.set("num_key_value_heads", "3")),
             is_bad_input("num_key_value_heads is 3 at the top and 6 in text_config"));
}

TEST_CASE("a text config without tensors of a language model is refused", "[formats]") {
  TinyModel model = golden_model("llava");
  CHECK_THAT(refusal_to_open(with_prefix_renamed(model, "language_model.", "text_backbone.")),
             is_bad_input("model.layers.0.self_attn.q_proj.weight is missing"));
  TinyModel none = model;
  none.tensors.clear();
  CHECK_THAT(refusal_to_open(none), is_bad_input("a language model of which", "has no tensor"));
  model.set("text_config", R"({"model_type": "clip_text_model"})");
  CHECK_THAT(refusal_to_open(model), is_bad_input("text_config", "clip_text_model"));
  CHECK_THAT(refusal_to_open(golden_model("llava").set("text_config", "7")),
             is_bad_input("unknown architecture llava"));
  // As many layers as a config claims are not made before their tensors are found.
  CHECK_THAT(refusal_to_open(with_text(golden_model("llava"), "num_hidden_layers", "2000000000")),
             is_bad_input("num_hidden_layers is 2000000000"));
}

TEST_CASE("a whole model under a name of regroup's own is refused", "[formats]") {
  CHECK_THAT(refusal_to_open(golden_model("llava").set("model_type", "\"regroup_alibi_llava\"")),
             is_bad_input("unknown architecture"));
}

}  // namespace
}  // namespace regroup

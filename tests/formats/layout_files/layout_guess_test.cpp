// Layout files made from a model's names, shapes and config: what is certain, guessed and refused.
#include "formats/layout_files/layout_guess.h"

#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "formats/layout_files/layout_file.h"
#include "formats/model/model.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

// A fixture under a name that no family has.
TinyModel unknown_model(std::string_view name) {
  return golden_model(name).set("model_type", "\"xyzzy\"").set("architectures", "[\"XyzzyLM\"]");
}

Json guessed(const TinyModel& tiny) {
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(put_model(directory.path(), tiny));
  return guess_layout(model.config, model.checkpoint, "config.json");
}

Error refusal_to_guess(const TinyModel& tiny) {
  return refusal_of([&] { guessed(tiny); });
}

// The attention that a guessed layout describes, and that of the family.
void check_same_attention(std::string_view name, Json layout) {
  const TemporaryDirectory directory;
  const ModelDirectory model =
      open_model_directory(put_model(directory.path(), unknown_model(name)));
  const ModelSpec spec =
      describe_with_layout(model.config, model.checkpoint, layout, "layout.json");
  const ModelSpec known = open_model(golden(name)).spec;
  CHECK(spec.layer_count() == known.layer_count());
  CHECK(spec.hidden_size == known.hidden_size);
  CHECK(spec.query_heads == known.query_heads);
  CHECK(spec.head_dim == known.head_dim);
  CHECK(spec.kv_heads == known.kv_heads);
  const auto attention_of = [](const ModelSpec& any) {
    std::vector<std::string> names;
    for (const ExpectedTensor& tensor : expected_attention_tensors(any)) {
      names.push_back(tensor.name + " " + text_of(tensor.shape));
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  CHECK(attention_of(spec) == attention_of(known));
}

TEST_CASE("a guessed layout describes the attention that the family's code describes",
          "[formats]") {
  for (const char* name : {"llama", "llama_mha", "llama_bf16", "qwen2", "qwen3", "gemma", "olmo2",
                           "starcoder2", "nemotron", "gptj", "opt", "bert", "cohere"}) {
    CAPTURE(name);
    const Json layout = guessed(unknown_model(name));
    CHECK_FALSE(layout.contains("packing"));
    check_same_attention(name, layout);
  }
}

TEST_CASE("a fused tensor's packing has to be chosen by hand", "[formats]") {
  for (const auto& [name, packing] :
       {std::pair{"bloom", "per_group"}, std::pair{"gpt_neox", "per_group"},
        std::pair{"gpt2", "query_key_value"}, std::pair{"phi3", "query_key_value"}}) {
    CAPTURE(name);
    Json layout = guessed(unknown_model(name));
    CHECK(layout["packing"] == kToBeChosen);
    CHECK(layout["comments"]["packing"].get<std::string>().starts_with("choose"));
    CHECK_THAT(refusal_of([&] { check_same_attention(name, layout); }),
               is_bad_input("packing is ?; known"));
    layout["packing"] = packing;
    check_same_attention(name, layout);
  }
}

TEST_CASE("GPT-2's input-major weights are told by their shapes, square ones are a guess",
          "[formats]") {
  const Json gpt2 = guessed(unknown_model("gpt2"));
  CHECK(gpt2["input_major"] == true);
  const Json square = guessed(unknown_model("llama_mha"));
  CHECK_FALSE(square.contains("input_major"));
  CHECK(square["comments"]["input_major"].get<std::string>().starts_with("guess"));
  CHECK(guessed(unknown_model("qwen2"))["comments"]["layers"].get<std::string>().starts_with(
      "certain"));
}

TEST_CASE("values come from the config's keys where these fit the shapes", "[formats]") {
  const Json layout = guessed(unknown_model("qwen2"));
  CHECK(layout["layers"] == "num_hidden_layers");
  CHECK(layout["hidden_size"] == "hidden_size");
  CHECK(layout["query_heads"] == "num_attention_heads");
  CHECK(layout["kv_heads_key"] == "num_key_value_heads");
  CHECK(layout["q_bias"] == "model.layers.{layer}.self_attn.q_proj.bias");
  TinyModel wrong = unknown_model("qwen2");
  CHECK(guessed(wrong.set("num_hidden_layers", "7"))["layers"] == 2);
  CHECK_THAT(refusal_to_guess(wrong.set("num_key_value_heads", "3")),
             is_bad_input("num_key_value_heads is 3, the shapes hold 2"));
  CHECK_THAT(refusal_to_guess(wrong.set("num_attention_heads", "null")),
             is_bad_input("no key for the number of query heads"));
  CHECK_THAT(refusal_to_guess(wrong.set("hidden_size", "99")), is_bad_input("the hidden size"));
}

TEST_CASE("the attention of a language model is told from that of images", "[formats]") {
  TinyModel model = golden_model("llava").set("model_type", "\"xyzzy\"");
  model.config = with_member(model.config, {"text_config", "model_type"}, "\"plugh\"");
  const Json layout = guessed(model);
  CHECK(layout["q"] == "language_model.model.layers.{layer}.self_attn.q_proj.weight");
  CHECK(layout["query_heads"] == "text_config.num_attention_heads");
  CHECK(layout["comments"]["stack"].get<std::string>().starts_with("guess"));
}

TEST_CASE("no layout is guessed where none helps or the attention cannot be told", "[formats]") {
  CHECK_THAT(refusal_to_guess(tiny_llama()), is_wrong_usage("a known architecture"));
  CHECK_THAT(refusal_to_guess(tiny_llama().set("model_type", "\"deepseek_v3\"")),
             is_bad_input("cannot be grouped", "latent"));
  CHECK_THAT(refusal_to_guess(unknown_model("llama").set("quantization_config", "{}")),
             is_bad_input("quantization_config"));
  CHECK_THAT(refusal_to_guess(unknown_model("t5")), is_bad_input("several attentions"));
  TinyModel bare = unknown_model("llama");
  bare.remove("model.layers.1.self_attn.k_proj.weight");
  CHECK_THAT(refusal_to_guess(bare), is_bad_input("no tensors named and shaped"));
}

}  // namespace
}  // namespace regroup

// A plan lists every tensor before any is read, and refuses what cannot be converted.
#include "converter/convert/conversion_plan.h"

#include <set>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

ConversionPlan plan_of(const TinyModel& tiny, Heads kv_heads) {
  const TemporaryDirectory directory;
  return plan_conversion(open_model(put_model(directory.path(), tiny)),
                         {.kv_heads = std::move(kv_heads)});
}

const TensorStep& step_of(const ConversionPlan& plan, const std::string& name) {
  for (const TensorStep& step : plan.steps) {
    if (step.output.name == name) {
      return step;
    }
  }
  throw std::logic_error("no step for " + name);
}

std::set<std::string> changed(const ConversionPlan& plan) {
  std::set<std::string> names;
  for (const TensorStep& step : plan.steps) {
    if (!step.unchanged()) {
      names.insert(step.output.name);
    }
  }
  return names;
}

TEST_CASE("a plan lists every source tensor once in the source's order", "[converter]") {
  for (const auto& make : {tiny_llama, tiny_gpt2, tiny_bloom}) {
    TinyModel tiny = make({});
    tiny.tensors.push_back({"a.tensor.nobody.knows", DType::kI64, {0}, ""});
    const ConversionPlan plan = plan_of(tiny, {4});
    REQUIRE(plan.steps.size() == tiny.tensors.size());
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      CHECK(plan.steps[i].output.name == tiny.tensors[i].name);
      CHECK(plan.steps[i].output.dtype == tiny.tensors[i].dtype);
    }
  }
}

TEST_CASE("a plan changes only K and V", "[converter]") {
  const ConversionPlan llama = plan_of(tiny_llama({.attention_bias = true}), {4});
  CHECK(changed(llama) ==
        std::set<std::string>{
            "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.k_proj.bias",
            "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.v_proj.bias",
            "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.k_proj.bias",
            "model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.v_proj.bias"});
  CHECK(step_of(llama, "model.layers.1.self_attn.v_proj.weight").output.shape == Shape{8, 6});
  CHECK(step_of(llama, "model.layers.1.self_attn.k_proj.bias").output.shape == Shape{8});

  const ConversionPlan gpt2 = plan_of(tiny_gpt2(), {4});
  CHECK(changed(gpt2).size() == 4);
  CHECK(step_of(gpt2, "transformer.h.0.attn.c_attn.weight").output.shape == Shape{24, 24 + 16});
  CHECK(step_of(gpt2, "transformer.h.0.attn.c_attn.bias").output.shape == Shape{24 + 16});

  const ConversionPlan bloom = plan_of(tiny_bloom(), {1});
  CHECK(changed(bloom).size() == 4);
  CHECK(step_of(bloom, "transformer.h.1.self_attention.query_key_value.weight").output.shape ==
        Shape{24 + 4, 24});
}

TEST_CASE("a plan for the same number of kv heads changes no tensor", "[converter]") {
  for (const auto& make : {tiny_llama, tiny_gpt2, tiny_bloom}) {
    const ConversionPlan plan = plan_of(make({}), {12});
    CHECK(changed(plan).empty());
    CHECK(plan.source_bytes == plan.output_bytes);
    CHECK(plan.notes ==
          std::vector<std::string>{"12 kv heads: tensor parallelism needs a number of "
                                   "GPUs that divides 12 or is a multiple"});
  }
}

TEST_CASE("a plan with kv heads per layer changes the layers that differ", "[converter]") {
  const ConversionPlan plan = plan_of(tiny_llama(), {12, 3});
  CHECK(plan.grouped.kv_heads == Heads{12, 3});
  CHECK(changed(plan) == std::set<std::string>{"model.layers.1.self_attn.k_proj.weight",
                                               "model.layers.1.self_attn.v_proj.weight"});
  CHECK(Json::parse(plan.config_text)["num_key_value_heads"] == Json{12, 3});
}

TEST_CASE("a plan pools a grouped model from its own kv heads", "[converter]") {
  for (const auto& make : {tiny_llama, tiny_gpt2, tiny_bloom}) {
    const ConversionPlan plan = plan_of(make({.kv_heads = 6}), {3});
    CHECK(plan.spec.kv_heads == Heads{6, 6});
    for (const TensorStep& step : plan.steps) {
      for (const HeadMove& move : step.moves) {
        CHECK(move.from.heads() == (move.pools() ? 6 : 12));
        CHECK(move.to.heads() == (move.pools() ? 3 : 12));
      }
    }
  }
}

TEST_CASE("a plan counts bytes of weights and cache bytes per token", "[converter]") {
  const ConversionPlan plan = plan_of(tiny_llama({.dtype = DType::kBF16}), {4});
  CHECK(plan.source_bytes - plan.output_bytes == 2 * 2 * (24 - 8) * 6 * 2);
  CHECK(plan.kv_bytes_per_token->before == 2 * 2 * 12 * 2 * 2);
  CHECK(plan.kv_bytes_per_token->after == 2 * 2 * 4 * 2 * 2);
  CHECK(plan.kv_bytes_per_token->dtype_after == DType::kBF16);
  CHECK(kv_bytes_per_token({8, 4, 1}, 64, DType::kF32) == 2 * 13 * 64 * 4);
}

TEST_CASE("notes say which loaders read the result", "[converter]") {
  CHECK(plan_of(tiny_llama(), {4}).notes.empty());
  CHECK(plan_of(tiny_llama(), {3}).notes.size() == 1);  // not a power of two
  const auto bloom = plan_of(tiny_bloom(), {4}).notes;
  REQUIRE(bloom.size() == 2);  // the second: see runtimes_test.cpp
  CHECK(bloom[0].find("trust_remote_code=True") != std::string::npos);
  const auto without_code =
      plan_conversion(open_model(golden("bloom")), {.kv_heads = {2}, .loader = LoaderChoice::kNone})
          .notes;
  REQUIRE(without_code.size() == 2);
  CHECK(without_code[0].find("stock BloomForCausalLM loaders") != std::string::npos);
  const auto mixed = plan_of(tiny_llama(), {4, 2}).notes;
  REQUIRE(mixed.size() == 2);
  CHECK(mixed[0].find("by the code in modeling_regroup_llama.py") != std::string::npos);
  const auto mixed_without = plan_conversion(open_model(golden("llama_mha")),
                                             {.kv_heads = {6, 2}, .loader = LoaderChoice::kNone})
                                 .notes;
  REQUIRE(mixed_without.size() == 2);
  CHECK(mixed_without[0].find("differ between layers") != std::string::npos);
}

TEST_CASE("impossible requests are wrong usage", "[converter]") {
  CHECK_THAT(refusal_of([] { plan_of(tiny_llama(), {5}); }), is_wrong_usage("5", "12"));
  CHECK_THAT(refusal_of([] { plan_of(tiny_llama({.kv_heads = 4}), {12}); }),
             is_wrong_usage("12", "only 4"));
  CHECK_THAT(refusal_of([] { plan_of(tiny_llama(), {4, 4, 4}); }), is_wrong_usage("3 layers", "2"));
}

TEST_CASE("K and V of different dtypes keep them, and are not made one tensor", "[converter]") {
  TinyModel tiny = tiny_llama({.hidden_size = 24});
  const std::string v = "model.layers.1.self_attn.v_proj.weight";
  tiny.tensor(v) = varied_tensor(v, DType::kBF16, {24, 24});
  for (const TensorStep& step : plan_of(tiny, {4}).steps) {
    CHECK(step.output.dtype == (step.output.name == v ? DType::kBF16 : DType::kF32));
  }
  const TemporaryDirectory directory;
  const Model model = open_model(put_model(directory / "model", tiny));
  ConversionRequest fused{.kv_heads = {4}, .target = "phi3"};
  CHECK_THAT(refusal_of([&] { plan_conversion(model, fused); }),
             is_wrong_usage("qkv_proj", "F32", v, "BF16", "--dtype"));
  fused.dtype = DType::kF32;
  CHECK_NOTHROW(plan_conversion(model, fused));
}

TEST_CASE("quantised K and V are refused with and without their scales", "[converter]") {
  TinyModel tiny = tiny_llama();
  for (const std::string role : {"k", "v"}) {
    BuiltTensor& tensor = tiny.tensor("model.layers.0.self_attn." + role + "_proj.weight");
    tensor.dtype = DType::kF8E4M3;
    tensor.bytes.resize(tensor.bytes.size() / 4);
  }
  CHECK_THAT(
      refusal_of([&] { plan_of(tiny, {4}); }),
      is_bad_input("model.layers.0.self_attn.k_proj.weight", "F8_E4M3", "F16, BF16, F32, F64"));
  CHECK(changed(plan_of(tiny, {12})).empty());  // a plain copy does not decode them
}

TEST_CASE("an unknown tensor of a pooled projection is refused", "[converter]") {
  for (const std::string part : {"weight_scale", "weight_zero_point", "bias"}) {
    CAPTURE(part);
    TinyModel tiny = tiny_llama();
    const std::string name = "model.layers.1.self_attn.k_proj." + part;
    tiny.tensors.push_back(varied_tensor(name, DType::kF32, {24}));
    CHECK_THAT(refusal_of([&] { plan_of(tiny, {4}); }), is_bad_input("model.safetensors", name));
    CHECK(changed(plan_of(tiny, {12, 12})).empty());
  }
  TinyModel with_buffers = tiny_gpt2();
  with_buffers.tensors.push_back(
      varied_tensor("transformer.h.0.attn.masked_bias", DType::kF32, {}));
  CHECK(changed(plan_of(with_buffers, {4})).size() == 4);
}

TEST_CASE("the converted config differs from the original in three members only", "[converter]") {
  for (const std::string_view name :
       {"llama_mha", "llama_fp16", "gpt2", "gpt2_base", "bloom", "bloom_base"}) {
    CAPTURE(name);
    const Model source = open_model(golden(name));
    const ConversionPlan plan = plan_conversion(source, {.kv_heads = {2}});
    Json edited = parse_json_object(plan.config_text, "config.json");
    CHECK(edited.at("num_key_value_heads") == 2);
    CHECK(edited.at("regroup").at("kv_heads") == 2);
    edited.erase("regroup");
    edited.erase("num_key_value_heads");
    edited.erase("auto_map");
    Json original = source.config;
    original.erase("num_key_value_heads");
    CHECK(edited.dump() == original.dump());  // including the order of keys
  }
}

TEST_CASE("kv heads are written under each family's own key", "[converter]") {
  const auto edited = [](std::string_view name, std::int64_t kv_heads) {
    const Model source = open_model(golden(name));
    return parse_json_object(plan_conversion(source, {.kv_heads = {kv_heads}}).config_text, "");
  };
  CHECK(edited("qwen3", 2).at("num_key_value_heads") == 2);
  CHECK(edited("falcon_40b", 2).at("num_kv_heads") == 2);
  CHECK(edited("mpt", 2).at("attn_config").at("kv_n_heads") == 2);
  CHECK(edited("gpt_bigcode_mha", 1).at("multi_query") == true);
  CHECK(edited("falcon_rw", 1).at("multi_query") == true);
  CHECK(edited("falcon_rw", 2).at("multi_query") == false);
}

TEST_CASE("results that stock loaders read get no note", "[converter]") {
  const auto notes_of = [](std::string_view name, std::int64_t kv_heads) {
    return plan_conversion(open_model(golden(name)), {.kv_heads = {kv_heads}}).notes;
  };
  CHECK(notes_of("falcon_rw", 1).empty());
  CHECK(notes_of("gpt_bigcode_mha", 1).empty());
  CHECK(notes_of("gpt_bigcode_mha", 2).size() == 3);
  CHECK(notes_of("gpt_neox", 2).size() == 3);
  CHECK(notes_of("phi", 2).empty());
}

TEST_CASE("key heads with per-head norms are refused", "[converter]") {
  const Model source = open_model(golden("stablelm_qk"));
  CHECK_THAT(refusal_of([&] { plan_conversion(source, {.kv_heads = {2}}); }),
             is_bad_input("StableLmForCausalLM", "k_layernorm.norms.0.weight"));
}

}  // namespace
}  // namespace regroup

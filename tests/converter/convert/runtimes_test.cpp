// What is said about the runtimes that load a result. tests/interop/runtimes compares it with them.
#include "converter/convert/runtimes.h"

#include <algorithm>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model.h"
#include "tests/converter/conversion.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Lines = std::vector<std::string>;

ConversionPlan plan_of(std::string_view fixture, std::vector<std::int64_t> kv_heads,
                       std::string target = "same") {
  return plan_conversion(open_model(golden(fixture)),
                         {.kv_heads = std::move(kv_heads), .target = std::move(target)});
}

Json config_of(const ConversionPlan& plan) { return Json::parse(plan.config_text); }

Lines warnings_of(const ConversionPlan& plan) {
  return runtime_warnings({config_of(plan), plan.target});
}

bool has_note(const ConversionPlan& plan, const std::string& note) {
  return std::find(plan.notes.begin(), plan.notes.end(), note) != plan.notes.end();
}

TEST_CASE("a result that all runtimes load has no note about them", "[converter]") {
  const ConversionPlan plan = plan_of("llama_mha", {2});
  CHECK(plan.notes.empty());
  CHECK(warnings_of(plan).empty());
  CHECK(runtimes_that_load({config_of(plan), plan.target}) == "vLLM, mlx-lm and CTranslate2");
}

TEST_CASE("a conversion names the runtimes that load its source and not its result",
          "[converter]") {
  CHECK(has_note(plan_of("gpt2", {2}),
                 "vLLM, mlx-lm and CTranslate2 do not load GPT2LMHeadModel with these kv heads"));
  CHECK(has_note(plan_of("bloom", {2}),
                 "vLLM and CTranslate2 do not load BloomForCausalLM with these kv heads"));
  CHECK(has_note(plan_of("falcon_11b", {1}),
                 "CTranslate2 does not load FalconForCausalLM with these kv heads"));
  CHECK(has_note(plan_of("llama_mha", {6, 2}),
                 "vLLM, mlx-lm and CTranslate2 do not load LlamaForCausalLM with these kv heads"));
  CHECK(has_note(plan_of("qwen3", {1, 2}),
                 "vLLM, mlx-lm and CTranslate2 do not load Qwen3ForCausalLM with these kv heads"));
  const ConversionPlan all_heads = plan_of("gpt2", {6});
  CHECK(runtime_notes(all_heads.spec, {config_of(all_heads), all_heads.target}).empty());
}

TEST_CASE("vLLM runs the code of a result, if there is one", "[converter]") {
  CHECK(has_note(plan_of("gpt_neox", {2}),
                 "vLLM runs the same code with --trust-remote-code --model-impl transformers, "
                 "without tensor parallelism"));
  const ConversionPlan without = plan_conversion(open_model(golden("gpt_neox")),
                                                 {.kv_heads = {2}, .loader = LoaderChoice::kNone});
  CHECK(has_note(without, "vLLM and mlx-lm do not load GPTNeoXForCausalLM with these kv heads"));
}

TEST_CASE("that a runtime never loads an architecture is said only if the source has another",
          "[converter]") {
  CHECK(plan_of("phi", {2}).notes.empty());
  const ConversionPlan as_phi = plan_of("gptj", {2}, "auto");
  CHECK(has_note(as_phi, "written as PhiForCausalLM, which vLLM and mlx-lm load"));
  CHECK(has_note(as_phi, "CTranslate2 does not load PhiForCausalLM"));
}

TEST_CASE("results that cache more than their kv heads are noted", "[converter]") {
  CHECK(has_note(plan_of("falcon_40b", {2}),
                 "transformers caches keys and values of all 12 query heads of FalconForCausalLM: "
                 "its cache stays as large"));
  CHECK(plan_of("falcon_rw", {1}).notes.empty());
  const ConversionPlan gguf = plan_conversion(open_model(golden("llama_mha")),
                                              {.kv_heads = {6, 2}, .container = Container::kGguf});
  CHECK(has_note(gguf,
                 "llama.cpp caches values in every layer for the most kv heads of any layer, "
                 "unless it runs with flash attention (--flash-attn on)"));
}

TEST_CASE("a warning names each runtime that computes something else", "[converter]") {
  const std::string begin = "mlx-lm computes something else from this result, without an error: ";
  const std::string activation =
      "it takes the usual activation of this architecture, whatever config.json says";
  CHECK(warnings_of(plan_of("opt", {1}, "auto")) == Lines{begin + activation});
  CHECK(warnings_of(plan_of("gpt2", {1}, "auto")).empty());
  CHECK(warnings_of(plan_of("nemotron", {2})) ==  // its fixture was saved by transformers 5
        Lines{begin +
              "it reads rope_theta and partial_rotary_factor of config.json, not rope_parameters"});
  const Lines alibi = warnings_of(plan_of("falcon_rw", {2}));
  REQUIRE(alibi.size() == 1);
  CHECK(alibi.front().starts_with("CTranslate2 computes something else"));
}

TEST_CASE("mlx-lm misses what only rope_parameters says", "[converter]") {
  ModelSpec spec = open_model(golden("llama_mha")).spec;
  const auto loading = [&](const char* config) {
    const Json parsed = Json::parse(config);
    return loading_in(Runtime::kMlxLm, {parsed, spec});
  };
  spec.rope.theta = 5e4;
  CHECK(loading(R"({"rope_theta": 5e4})") == Loading::kSame);
  CHECK(loading(R"({"rope_theta": 5e4, "rope_parameters": {"rope_theta": 5e4}})") ==
        Loading::kSame);
  CHECK(loading(R"({"rope_parameters": {"rope_theta": 5e4}})") == Loading::kSomethingElse);
  CHECK(loading(R"({"rope_parameters": null})") == Loading::kSame);
  spec.rope.theta = 1e4;  // what it takes anyway
  CHECK(loading(R"({"rope_parameters": {"rope_theta": 1e4}})") == Loading::kSame);
  CHECK(loading(R"({"rope_parameters": {"rope_theta": 1e4, "rope_type": "llama3"}})") ==
        Loading::kSomethingElse);
  spec.architecture = "StableLmForCausalLM";
  CHECK(loading(R"({"rope_parameters": {"rope_theta": 1e4}})") == Loading::kNotThisFamily);
  spec.architecture = "Qwen3ForCausalLM";  // it reads them there
  CHECK(loading(R"({"rope_parameters": {"rope_theta": 5e4}})") == Loading::kSame);
}

TEST_CASE("nothing is said of architectures that were not tried", "[converter]") {
  const ConversionPlan plan = plan_of("t5", {2});
  CHECK(runtimes_that_load({config_of(plan), plan.target}).empty());
  CHECK(loading_in(Runtime::kVllm, {config_of(plan), plan.target}) == Loading::kUnknown);
}

}  // namespace
}  // namespace regroup

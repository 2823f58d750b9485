// Checkpoints with quantised weights: each is refused with what to use instead.
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/model/model.h"
#include "tests/checkpoint_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

Error refusal_to_describe(const TinyModel& tiny) {
  return refusal_of([&] { spec_of(tiny); });
}

// A model whose first MLP matrix has another type, as files of each method have it.
TinyModel with_codes(DType dtype, const std::string& settings) {
  TinyModel model = tiny_llama().set("quantization_config", settings);
  BuiltTensor& gate = model.tensor("model.layers.0.mlp.gate_proj.weight");
  gate.dtype = dtype;
  gate.bytes.resize(gate.bytes.size() * block_bytes(dtype) / 4);
  return model;
}

Error refusal_of_method(const std::string& settings, DType dtype = DType::kI8) {
  return refusal_to_describe(with_codes(dtype, settings));
}

TEST_CASE("each method of quantisation is refused by name, with what to use instead", "[formats]") {
  CHECK_THAT(refusal_of_method(R"({"quant_method": "gptq", "bits": 4})", DType::kI32),
             is_bad_input("gate_proj.weight", "GPTQ", "made from"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "bitsandbytes"})", DType::kU8),
             is_bad_input("bitsandbytes", "made from"));
  CHECK_THAT(refusal_of_method(R"({"load_in_8bit": true})"), is_bad_input("bitsandbytes"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "compressed-tensors"})"),
             is_bad_input("packed weights"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "fp8"})", DType::kF8E4M3),
             is_bad_input("scale per block"));
  for (const char* settings : {R"({"quant_method": "\u001b[2J"})", "7", "{}"}) {
    CHECK_THAT(refusal_of_method(settings), is_bad_input("quantised weights", "made from"));
  }
}

TEST_CASE("a config that calls plain weights quantised is contradicted, and results go without it",
          "[formats]") {
  const TemporaryDirectory place;
  TinyModel plain = tiny_llama({.dtype = DType::kBF16});
  plain.set("rms_norm_eps", "1e-05");  // spells the config as set() does
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    TinyModel stale = plain;
    const Model model = open_model(
        put_model(place / key, stale.set(key, R"({"quant_method": "fp8", "load_in_4bit": true})")));
    CHECK(model.config_text == plain.config);
    CHECK_FALSE(model.config.contains(key));
    REQUIRE(model.spec.contradictions.size() == 1);
    CHECK(model.spec.contradictions[0].find(fmt::format("{} (fp8): ignored", key)) !=
          std::string::npos);
  }
  TinyModel part = golden_model("llava");
  part.config = with_member(part.config, {"text_config", "quantization_config"},
                            R"({"quant_method": "awq"})");
  const Model model = open_model(put_model(place / "part", part));
  CHECK(model.config == parse_json_object(golden_model("llava").config, ""));
  CHECK(model.spec.contradictions.size() == 1);
}

TEST_CASE("a quantised model's config alone is described, with a word on its sizes", "[formats]") {
  const TemporaryDirectory place;
  TinyModel model = tiny_llama().set("quantization_config", R"({"quant_method": "awq"})");
  write_text(place / "config.json", without_member(model.config, "torch_dtype"));
  const Model outline = open_model_outline(place.path());
  CHECK(outline.checkpoint.tensors().front().dtype == DType::kF16);
  REQUIRE(outline.spec.contradictions.size() == 1);
  CHECK(outline.spec.contradictions[0].find("(awq): sizes of weights") != std::string::npos);
}

TEST_CASE("quantised weights are found by their names if the config is silent", "[formats]") {
  const auto refusal_beside = [](const std::string& name) {
    TinyModel model = tiny_llama();
    model.tensors.push_back(
        varied_tensor("model.layers.0.self_attn.k_proj" + name, DType::kF32, {4}));
    return refusal_to_describe(model);
  };
  CHECK_THAT(refusal_beside(".qweight"), is_bad_input("k_proj.qweight", "GPTQ"));
  CHECK_THAT(refusal_beside(".weight_packed"), is_bad_input("compressed-tensors"));
  CHECK_THAT(refusal_beside(".weight_scale_inv"), is_bad_input("FP8"));
  CHECK_THAT(refusal_beside(".weight.absmax"), is_bad_input("bitsandbytes"));
  CHECK_THAT(refusal_beside(".W_q"), is_bad_input("HQQ"));
  CHECK_THAT(refusal_beside(".codebooks"), is_bad_input("AQLM"));
  CHECK_THAT(refusal_beside(".weight_scale_2"), is_bad_input("NVFP4"));
}

}  // namespace
}  // namespace regroup

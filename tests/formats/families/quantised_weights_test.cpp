// Checkpoints with quantised weights: each is refused with what to use instead.
#include <catch2/catch_test_macros.hpp>

#include "tests/checkpoint_builder.h"
#include "tests/refusal.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

Error refusal_to_describe(const TinyModel& tiny) {
  return refusal_of([&] { spec_of(tiny); });
}

Error refusal_of_method(const std::string& settings) {
  return refusal_to_describe(tiny_llama().set("quantization_config", settings));
}

TEST_CASE("each method of quantisation is refused by name, with what to use instead", "[formats]") {
  CHECK_THAT(refusal_of_method(R"({"quant_method": "gptq", "bits": 4})"),
             is_bad_input("quantization_config (gptq)", "GPTQ", "made from"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "awq"})"),
             is_bad_input("(awq)", "AWQ", "made from"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})"),
             is_bad_input("(bitsandbytes)", "made from"));
  CHECK_THAT(refusal_of_method(R"({"load_in_8bit": true})"), is_bad_input("(bitsandbytes)"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "compressed-tensors"})"),
             is_bad_input("(compressed-tensors)", "packed weights"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})"),
             is_bad_input("(fp8)", "scale per block"));
  CHECK_THAT(refusal_of_method(R"({"quant_method": "\u001b[2J"})"),
             is_bad_input(R"(\x1b[2J)", "quantised weights", "made from"));
  for (const char* settings : {"7", "{}", R"({"quant_method": 7})"}) {
    CHECK_THAT(refusal_of_method(settings),
               is_bad_input("quantization_config: ", "quantised weights"));
  }
}

TEST_CASE("quantisation is found under its older key and in a language model's config",
          "[formats]") {
  CHECK_THAT(refusal_to_describe(tiny_llama().set("compression_config",
                                                  R"({"quant_method": "compressed-tensors"})")),
             is_bad_input("compression_config (compressed-tensors)"));
  TinyModel part = golden_model("llava");
  part.config = with_member(part.config, {"text_config", "quantization_config"},
                            R"({"quant_method": "awq"})");
  CHECK_THAT(refusal_to_describe(part), is_bad_input("quantization_config (awq)"));
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
}

}  // namespace
}  // namespace regroup

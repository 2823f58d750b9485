// Whether a result in another form computes the same, and what of the difference is rounding.
#include "cli/measure/compare_logits.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

std::optional<OutputComparison> comparison_of(const char* name, const ConversionRequest& request) {
  const TemporaryDirectory directory;
  convert(golden(name), directory / "result", request);
  const Model source = open_model(golden(name));
  const Console console;
  return compare_with_source(source, request, plan_conversion(source, request),
                             directory / "result", console);
}

TEST_CASE("a result in the source's dtype has one difference, without rounding", "[cli]") {
  const auto found = comparison_of("gpt_neox", {.kv_heads = {2}, .target = "phi"});
  REQUIRE(found);
  CHECK(found->largest_output > 1.0);
  CHECK(found->largest_difference < 1e-5 * found->largest_output);
  CHECK_FALSE(found->without_rounding);
}

TEST_CASE("in a narrower dtype the difference without its rounding is separate", "[cli]") {
  const auto found =
      comparison_of("gpt2", {.kv_heads = {1}, .target = "gpt_bigcode", .dtype = DType::kBF16});
  REQUIRE(found);
  REQUIRE(found->without_rounding);
  // bf16 keeps 8 bits. Its rounding alone changes logits visibly; moved numbers change only the
  // order of sums.
  CHECK(found->largest_difference > 1e-3 * found->largest_output);
  CHECK(*found->without_rounding < 1e-5 * found->largest_output);
}

TEST_CASE("the report of a conversion separates rounding only if --dtype rounds", "[cli]") {
  const auto exactness = [](std::vector<std::string> more) {
    const TemporaryDirectory directory;
    std::vector<std::string> words{"convert",
                                   golden("gpt_neox").string(),
                                   (directory / "result").string(),
                                   "--kv-heads",
                                   "2",
                                   "--target",
                                   "phi"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_program(words);
    CHECK(result.exit_code == 0);
    const std::size_t begin = result.out.find("exactness largest logit difference ");
    REQUIRE(begin != std::string::npos);
    return result.out.substr(begin, result.out.find('\n', begin) - begin);
  };
  CHECK_THAT(exactness({}), !ContainsSubstring("rounding"));
  CHECK_THAT(exactness({"--dtype", "fp32"}), !ContainsSubstring("rounding"));
  CHECK_THAT(exactness({"--dtype", "bf16"}), ContainsSubstring("without rounding to BF16"));
  CHECK_THAT(exactness({"--dtype", "fp16"}), ContainsSubstring("without rounding to F16"));
}

TEST_CASE("experts may be rounded on the way to GGUF, and the report shows what rounding does",
          "[cli]") {
  const TemporaryDirectory directory;
  const auto convert_to_gguf = [&](const std::string& source, const char* name, const char* dtype) {
    const ProgramResult result =
        run_program({"convert", source, (directory / name).string(), "--to", "gguf", "--kv-heads",
                     "2", "--dtype", dtype, "--json"});
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    return result.json();
  };
  const std::string source = golden("mixtral_stacked").string();
  const std::string halved = (directory / "halved").string();
  const Json rounded = convert_to_gguf(source, "bf16", "bf16");
  CHECK(rounded.at("largest_logit_difference") > 0.1);
  CHECK(rounded.at("largest_logit_difference_without_rounding") < 1e-4);
  REQUIRE(run_program({"convert", source, halved, "--dtype", "bf16", "-q"}).exit_code == 0);
  CHECK(convert_to_gguf(halved, "fp32", "fp32").at("largest_logit_difference") < 1e-4);
}

TEST_CASE("the report of Q8_0 in a GGUF file says how much of the difference is rounding",
          "[cli]") {
  const TemporaryDirectory directory;
  const std::string source = (directory / "source").string();
  put_file(directory / "config.json", R"({
      "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
      "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "float32"})");
  REQUIRE(run_program({"init", (directory / "config.json").string(), source}).exit_code == 0);
  const ProgramResult done =
      run_program({"convert", source, (directory / "out.gguf").string(), "--dtype", "q8_0"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("without rounding to Q8_0"));
  const Json report = run_program({"convert", source, (directory / "again.gguf").string(),
                                   "--dtype", "q8_0", "--json"})
                          .json();
  CHECK(report.at("largest_logit_difference") > 1e-3);
  CHECK(report.at("largest_logit_difference_without_rounding") < 1e-5);
}

}  // namespace
}  // namespace regroup

// Which models are recognised by their shape.
#include "formats/spec/published_pretraining.h"

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/base/json.h"
#include "formats/families/family.h"

namespace regroup {
namespace {

// The spec of a config without any weights.
ModelSpec spec_of(const std::string& config) {
  return describe_model(Json::parse(config), Checkpoint(std::vector<Checkpoint::Part>()),
                        "config.json");
}

std::string llama(int hidden, int layers, int heads, int kv_heads, int positions,
                  const std::string& more = "") {
  return fmt::format(
      R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": {},
           "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {},
           "max_position_embeddings": {}, "vocab_size": 32000, "intermediate_size": 11008,
           "rms_norm_eps": 1e-5, "tie_word_embeddings": false{}}})",
      hidden, layers, heads, kv_heads, positions, more);
}

}  // namespace

TEST_CASE("Llama 2 is recognised by its shape before and after conversion", "[formats]") {
  for (const int kv_heads : {32, 8, 1}) {
    const auto found = published_pretraining(spec_of(llama(4096, 32, 32, kv_heads, 4096)));
    REQUIRE(found.has_value());
    CHECK(found->model == "Llama 2 7B");
    CHECK(found->tokens == 2'000'000'000'000);
    CHECK(found->source.find("2307.09288") != std::string_view::npos);
  }
}

TEST_CASE("a shape shared by models with different pretraining is not recognised", "[formats]") {
  CHECK_FALSE(published_pretraining(spec_of(llama(4096, 32, 32, 32, 2048))));  // LLaMA, Amber
  CHECK_FALSE(published_pretraining(spec_of(llama(4096, 33, 32, 32, 4096))));
  CHECK_FALSE(published_pretraining(
      spec_of(llama(4096, 32, 32, 32, 4096, R"(, "rope_theta": 1000000.0)"))));
  CHECK_FALSE(published_pretraining(spec_of(
      llama(4096, 32, 32, 32, 4096, R"(, "rope_scaling": {"type": "linear", "factor": 2.0})"))));
}

TEST_CASE("Pythia is recognised by the fraction of each head that rotates", "[formats]") {
  const auto neox = [](double rotary_pct) {
    return spec_of(fmt::format(
        R"({{"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 4096,
             "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
             "vocab_size": 50432, "intermediate_size": 16384, "rotary_pct": {},
             "layer_norm_eps": 1e-5, "hidden_act": "gelu", "use_parallel_residual": true}})",
        rotary_pct));
  };
  const auto pythia = published_pretraining(neox(0.25));
  REQUIRE(pythia.has_value());
  CHECK(pythia->model == "Pythia 6.9B");
  CHECK(pythia->tokens == 299'892'736'000);
  CHECK_FALSE(published_pretraining(neox(1.0)));  // RedPajama-INCITE 7B
}

TEST_CASE("mT5 is recognised and a T5 with a common shape is not", "[formats]") {
  const auto t5 = [](const std::string& type, const std::string& architecture, int vocab_size) {
    return spec_of(fmt::format(
        R"({{"model_type": "{}", "architectures": ["{}"], "d_model": 768, "d_kv": 64, "d_ff": 2048,
             "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12, "vocab_size": {},
             "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32,
             "layer_norm_epsilon": 1e-6, "tie_word_embeddings": false}})",
        type, architecture, vocab_size));
  };
  CHECK_FALSE(published_pretraining(t5("t5", "T5ForConditionalGeneration", 32128)));
  const auto found = published_pretraining(t5("mt5", "MT5ForConditionalGeneration", 250112));
  REQUIRE(found.has_value());
  CHECK(found->model == "mT5 Base");
}

}  // namespace regroup

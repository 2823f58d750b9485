// Bytes of keys and values, compared with hand-computed numbers.
#include <catch2/catch_test_macros.hpp>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/serving_cost.h"
#include "tests/file_tree.h"

namespace regroup {
namespace {

KvCacheCost cost_of(const std::string& config, DType dtype) {
  const ModelSpec spec = describe_model(Json::parse(config), Checkpoint({}), "config.json");
  return kv_cache_cost(spec, dtype).value();
}

TEST_CASE("a sliding window limits the cache", "[formats]") {
  const KvCacheCost cost = cost_of(R"({"architectures": ["MistralForCausalLM"],
    "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "sliding_window": 4096, "vocab_size": 32000})",
                                   DType::kBF16);
  CHECK(cost.per_token() == 128 * 1024);  // 2 · 32 · 8 · 128 · 2
  CHECK(cost.at(1000) == 1000 * 128 * 1024);
  CHECK(cost.at(4096) == cost.at(131072));
}

TEST_CASE("an encoder-decoder caches its own tokens and the source's", "[formats]") {
  const KvCacheCost cost = cost_of(R"({"architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8, "num_layers": 6,
    "num_decoder_layers": 4, "vocab_size": 32128})",
                                   DType::kF32);
  CHECK(cost.per_token() == 2 * 4 * 8 * 64 * 4);
  CHECK(cost.cross_per_token() == 2 * 4 * 8 * 64 * 4);
  CHECK(cost.at(10) == 2 * 10 * cost.per_token());
}

TEST_CASE("each layer caches its own number of kv heads", "[formats]") {
  const Model model = open_model(golden("nemotron_nas"));
  const KvCacheCost cost = kv_cache_cost(model.spec, DType::kF16).value();
  REQUIRE(cost.self.size() == model.spec.layers.size());
  for (std::size_t i = 0; i < cost.self.size(); ++i) {
    const auto heads = static_cast<std::uint64_t>(model.spec.kv_heads[i]);
    CHECK(cost.self[i] == 2 * heads * static_cast<std::uint64_t>(model.spec.head_dim) * 2);
  }
  CHECK(std::count(cost.self.begin(), cost.self.end(), 0U) > 0);
}

TEST_CASE("an encoder has no cache", "[formats]") {
  CHECK_FALSE(kv_cache_cost(open_model(golden("bert")).spec, DType::kF32));
}

TEST_CASE("a cache of block types holds whole blocks", "[formats]") {
  ModelSpec spec = open_model(golden("llama")).spec;  // 2 layers, 4 kv heads of 8
  CHECK(kv_cache_cost(spec, DType::kQ8_0)->per_token() == 2 * 2 * 34);
  spec.kv_heads = {5, 5};  // 40 elements: two blocks of 32
  CHECK(kv_cache_cost(spec, DType::kQ8_0)->per_token() == 2 * 2 * 2 * 34);
}

TEST_CASE("the cache has the weights' type or F16 for quantised weights", "[formats]") {
  CHECK(cache_dtype_of(DType::kBF16) == DType::kBF16);
  CHECK(cache_dtype_of(DType::kF32) == DType::kF32);
  CHECK(cache_dtype_of(DType::kQ4K) == DType::kF16);
  CHECK(cache_dtype_of(DType::kF8E4M3) == DType::kF16);
}

}  // namespace
}  // namespace regroup

// Serving costs by number of kv heads, compared with known models and with conversions.
#include "formats/model/serving_cost.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kGiB = 1024 * 1024 * kKiB;

// From a Llama's config.json alone.
std::vector<ServingCost> costs_of_llama(std::int64_t layers, std::int64_t hidden,
                                        std::int64_t intermediate, std::int64_t heads,
                                        std::int64_t kv_heads, std::int64_t vocabulary) {
  const TemporaryDirectory directory;
  const Json config{{"architectures", {"LlamaForCausalLM"}},
                    {"model_type", "llama"},
                    {"hidden_size", hidden},
                    {"intermediate_size", intermediate},
                    {"num_attention_heads", heads},
                    {"num_hidden_layers", layers},
                    {"num_key_value_heads", kv_heads},
                    {"torch_dtype", "bfloat16"},
                    {"vocab_size", vocabulary}};
  put_file(directory / "config.json", config.dump());
  return serving_costs(open_model_outline(directory.path()), {});
}

std::uint64_t with_heads(const std::vector<ServingCost>& costs, std::int64_t kv_heads) {
  for (const ServingCost& cost : costs) {
    if (cost.kv_heads == kv_heads) {
      return cost.cache.per_token();
    }
  }
  return 0;
}

TEST_CASE("cache sizes of known models follow from their configs", "[converter]") {
  const auto llama_7b = costs_of_llama(32, 4096, 11008, 32, 32, 32000);
  CHECK(llama_7b.front().cache.per_token() == 512 * kKiB);
  CHECK(llama_7b.front().weight_bytes == 2 * 6'738'415'616);
  CHECK(llama_7b.size() == 6);  // 32, 16, 8, 4, 2, 1
  CHECK(with_heads(llama_7b, 8) == 128 * kKiB);
  CHECK(costs_of_llama(40, 5120, 13824, 40, 40, 32000).front().cache.per_token() == 800 * kKiB);
  const auto llama_70b = costs_of_llama(80, 8192, 28672, 64, 64, 32000);
  CHECK(llama_70b.front().cache.per_token() == 2560 * kKiB);
  CHECK(with_heads(llama_70b, 8) == 320 * kKiB);
  CHECK(costs_of_llama(32, 4096, 14336, 32, 8, 128256).front().cache.per_token() == 128 * kKiB);
}

TEST_CASE("predicted weights and cache equal those of a conversion", "[converter]") {
  const TemporaryDirectory directory;
  for (const char* name : {"llama_mha", "gpt2", "bloom_12", "t5", "falcon_40b", "gptj", "qwen2",
                           "olmo2", "gguf/llama.gguf"}) {
    const Model model = open_model(golden(name));
    for (const ServingCost& cost : serving_costs(model, {})) {
      if (cost.kv_heads) {
        CAPTURE(name, *cost.kv_heads);
        const ConversionPlan plan = plan_conversion(model, {.kv_heads = {*cost.kv_heads}});
        CHECK(cost.weight_bytes == plan.output_bytes);
        CHECK(cost.cache.per_token() == plan.kv_bytes_per_token->after);
        CHECK(cost.spec.kv_heads == plan.grouped.kv_heads);
      }
    }
  }
}

TEST_CASE("costs are listed for every common divisor of the layers' kv heads", "[converter]") {
  const TemporaryDirectory directory;
  convert(put_model(directory / "source", tiny_llama()), directory / "mixed",
          {.kv_heads = {12, 4}});
  std::vector<std::int64_t> found;
  for (const ServingCost& cost : serving_costs(open_model(directory / "mixed"), {})) {
    found.push_back(cost.kv_heads.value_or(0));
  }
  CHECK(found == std::vector<std::int64_t>{0, 4, 2, 1});
}

TEST_CASE("memory and the largest batch and context equal hand-computed values", "[converter]") {
  const auto costs = costs_of_llama(32, 4096, 11008, 32, 32, 32000);
  const ServingCost& mha = costs.front();  // 12.55 GiB of weights, 2 GiB of cache at 4096
  CHECK(mha.memory(4096, 3) == mha.weight_bytes + 6 * kGiB);
  CHECK(mha.largest_batch(24 * kGiB, 4096) == 5);
  CHECK(mha.largest_batch(12 * kGiB, 4096) == 0);
  CHECK(mha.largest_context(24 * kGiB, 16) == (24 * kGiB - mha.weight_bytes) / 16 / (512 * kKiB));
  CHECK(mha.bytes_per_step(4096, 2) == mha.weight_bytes - 2 * 32000 * 4096 + 4 * kGiB);
  // K and V shrink to a quarter: 2 · 4096 · 3072 fewer elements in each of 32 layers.
  CHECK(mha.weight_bytes - costs[2].weight_bytes == 32UL * 2 * 4096 * 3072 * 2);
  CHECK(costs[2].bytes_per_step(0, 1) == costs[2].weight_bytes - 2 * 32000 * 4096);
}

TEST_CASE("a sliding window that fits allows any context", "[converter]") {
  ServingCost cost{.kv_heads = std::nullopt,
                   .spec = {},
                   .weight_bytes = 100,
                   .step_weight_bytes = 100,
                   .expert_bytes = 0,
                   .cache = {.self = {10}, .cross = {}, .window = 8}};
  CHECK_FALSE(cost.largest_context(100 + 80, 1));
  CHECK(cost.largest_context(100 + 79, 1) == 7);
  cost.cache.cross = {2};
  CHECK(cost.largest_context(100 + 80 + 40, 1) == 20);
  cost.cache.unlimited = 4;  // of 10 bytes, those of layers without a window
  CHECK(cost.largest_context(100 + 6 * 8 + (4 + 2) * 20, 1) == 20);
  CHECK(cost.largest_context(100 + 6 * 8 + (4 + 2) * 20 - 1, 1) == 19);
}

TEST_CASE("a model without a cache has no serving costs", "[converter]") {
  CHECK_THAT(refusal_of([] { serving_costs(open_model(golden("bert")), {}); }),
             is_wrong_usage("has no KV cache"));
}

}  // namespace
}  // namespace regroup

// Decoding with a cache compared with whole passes, for every kind of model.
#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/model/serving_cost.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/model/decode.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

constexpr double kCacheRounding = 1e-10;  // of fp64 arithmetic
constexpr double kWrongCache = 1e-2;

Transformer model_of(const Model& source, at::ScalarType type = at::kDouble) {
  return load_transformer(source, type, at::kCPU);
}

// Logits of all tokens, read into the cache in chunks of `chunk` tokens.
at::Tensor cached_logits(const Transformer& model, const at::Tensor& tokens, KvCache& cache,
                         std::int64_t chunk) {
  std::vector<at::Tensor> logits;
  for (std::int64_t first = 0; first < tokens.size(1); first += chunk) {
    const std::int64_t count = std::min(chunk, tokens.size(1) - first);
    logits.push_back(model.logits(model.hidden_states(tokens.narrow(1, first, count), cache)));
  }
  return at::cat(logits, 1);
}

at::Tensor whole_logits(const Transformer& model, const at::Tensor& tokens) {
  return model.logits(model.hidden_states(tokens));
}

KvCacheSettings room_for(const at::Tensor& tokens) {
  return {.batch = tokens.size(0), .capacity = tokens.size(1), .window = {}, .sinks = 0};
}

// Chunked passes give the same logits as one pass.
void check_decoding(const Transformer& model, const at::Tensor& tokens) {
  const at::Tensor expected = whole_logits(model, tokens);
  for (const std::int64_t chunk : {1, 4, 7}) {
    CAPTURE(chunk);
    KvCache cache = model.make_cache(room_for(tokens));
    CHECK(largest_difference(cached_logits(model, tokens, cache, chunk), expected) <=
          kCacheRounding);
    CHECK(cache.length() == tokens.size(1));
  }
}

}  // namespace

TEST_CASE("cached logits equal those of a whole pass", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE(
      "llama", "qwen2", "mistral", "gpt2", "bloom", "bloom_12", "qwen3", "gemma", "olmo", "olmo2",
      "phi3", "phi3_longrope", "cohere", "granite", "smollm3", "biogpt", "persimmon", "phi",
      "phi_qk_layernorm", "stablelm", "stablelm_qk", "starcoder2", "nemotron", "gpt_neox",
      "gpt_neox_sequential", "gptj", "opt", "opt_350m", "mpt", "mpt_12", "falcon_rw", "falcon_40b",
      "falcon_7b", "gpt_bigcode", "gpt_bigcode_mha", "llama_rope_linear", "llama_rope_dynamic",
      "llama_rope_llama3", "llama_rope_yarn_mscale", "nemotron_nas", "baichuan2_7b",
      "baichuan2_13b", "internlm", "internlm2", "qwen", "codegen", "olmo3", "gpt_neo", "gemma2",
      "gemma3", "cohere2", "qwen2_windows", "xglm", "minicpm", "olmoe", "qwen2_moe",
      "mixtral_stacked", "granitemoe", "deepseek");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = model_of(golden.source);
  check_decoding(model, golden.tokens);
  KvCache cache = model.make_cache(room_for(golden.tokens));
  CHECK(largest_difference(cached_logits(model, golden.tokens, cache, 1), golden.logits) <= 1e-4);
}

TEST_CASE("a cache without one token gives other logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name =
      GENERATE("llama", "gptj", "bloom", "gpt2", "olmo2", "nemotron_nas", "mpt_12", "smollm3");
  const auto chunk = GENERATE(std::int64_t{1}, std::int64_t{5});
  CAPTURE(name, chunk);
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = model_of(golden.source);
  KvCache cache = model.make_cache(room_for(golden.tokens));
  read_tokens(model, golden.tokens.narrow(1, 0, 6), cache, 6);
  cache.assume_length(5);
  const at::Tensor rest = golden.tokens.narrow(1, 6, 7);
  const at::Tensor expected = whole_logits(model, golden.tokens).narrow(1, 6, 7);
  CHECK(largest_difference(cached_logits(model, rest, cache, chunk), expected) >= kWrongCache);
  // With the token, the logits are right again.
  cache.assume_length(5);
  read_tokens(model, golden.tokens.narrow(1, 5, 1), cache, 1);
  CHECK(largest_difference(cached_logits(model, rest, cache, chunk), expected) <= kCacheRounding);
}

TEST_CASE("layers with different kv heads decode with the cache size that plan predicts",
          "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  const auto* name = GENERATE("llama_mha", "gpt2", "bloom", "gpt_neox");
  CAPTURE(name);
  const GoldenCase golden_case = load_golden_case(name);
  std::vector<std::int64_t> kv_heads(golden_case.source.spec.layers.size(), 3);
  kv_heads.back() = 1;
  convert(golden(name), directory / "mixed", {.kv_heads = kv_heads});
  const Model source = open_computable_model(directory / "mixed");
  const Transformer model = model_of(source, at::kDouble);
  check_decoding(model, golden_case.tokens);
  const KvCache cache = model.make_cache({.batch = 2, .capacity = 10, .window = {}, .sinks = 0});
  const std::int64_t heads = 3 * (source.spec.layer_count() - 1) + 1;
  const auto by_hand = static_cast<std::uint64_t>(2 * heads * source.spec.head_dim * 8 * 2 * 10);
  CHECK(cache.bytes() == by_hand);
  CHECK(cache.bytes() == 2 * kv_cache_cost(source.spec, DType::kF64)->at(10));
}

TEST_CASE("a sliding window keeps only its own tokens", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const GoldenCase golden = load_golden_case("mistral");  // window of 5
  const Transformer model = model_of(golden.source);
  KvCache cache = model.make_cache(room_for(golden.tokens));
  CHECK(cache.bytes() == 2 * kv_cache_cost(golden.source.spec, DType::kF64)->at(13));
  CHECK(cache.bytes() < 2 * kv_cache_cost(golden.source.spec, DType::kF64)->at(5) + 1);
  const at::Tensor expected = whole_logits(model, golden.tokens);
  const auto chunk = GENERATE(std::int64_t{1}, std::int64_t{3}, std::int64_t{6}, std::int64_t{13});
  CAPTURE(chunk);
  CHECK(largest_difference(cached_logits(model, golden.tokens, cache, chunk), expected) <=
        kCacheRounding);
}

TEST_CASE("a cache window on any model equals the model with that sliding window", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "gptj", "bloom", "gpt2");
  const auto chunk = GENERATE(std::int64_t{1}, std::int64_t{3}, std::int64_t{6});
  CAPTURE(name, chunk);
  GoldenCase golden = load_golden_case(name);
  const Transformer model = model_of(golden.source);
  KvCacheSettings settings = room_for(golden.tokens);
  settings.window = 4;
  KvCache cache = model.make_cache(settings);
  const at::Tensor logits = cached_logits(model, golden.tokens, cache, chunk);
  golden.source.spec.sliding_window = 4;
  const at::Tensor expected = whole_logits(model_of(golden.source), golden.tokens);
  CHECK(largest_difference(logits, expected) <= kCacheRounding);
  CHECK(largest_difference(whole_logits(model, golden.tokens), expected) >= kWrongCache);
}

TEST_CASE("positions of attention sinks and window are contiguous after tokens are dropped",
          "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "gptj", "bloom", "llama_rope_yarn_mscale", "smollm3");
  CAPTURE(name);
  // In a single layer, keys and values depend on their token only. Therefore a sequence without the
  // dropped tokens gives what StreamingLLM's cache should give.
  GoldenCase golden = load_golden_case(name);
  golden.source.spec.layers = {golden.source.spec.layers.back()};  // SmolLM3's has no RoPE
  golden.source.spec.kv_heads.resize(1);
  const Transformer model = model_of(golden.source);
  KvCacheSettings settings = room_for(golden.tokens);
  settings.window = 4;
  settings.sinks = 2;
  KvCache cache = model.make_cache(settings);
  KvCache no_sinks = model.make_cache(
      {.batch = settings.batch, .capacity = settings.capacity, .window = 6, .sinks = 0});
  for (std::int64_t i = 0; i < golden.tokens.size(1); ++i) {
    CAPTURE(i);
    const at::Tensor token = golden.tokens.narrow(1, i, 1);
    const at::Tensor logits = model.logits(model.hidden_states(token, cache)).select(1, 0);
    const at::Tensor without = model.logits(model.hidden_states(token, no_sinks)).select(1, 0);
    const at::Tensor seen =
        i < 6 ? golden.tokens.narrow(1, 0, i + 1)
              : at::cat({golden.tokens.narrow(1, 0, 2), golden.tokens.narrow(1, i - 3, 4)}, 1);
    const at::Tensor expected = whole_logits(model, seen).select(1, seen.size(1) - 1);
    CHECK(largest_difference(logits, expected) <= kCacheRounding);
    CHECK((i < 6 || largest_difference(without, expected) >= kWrongCache));
  }
}

TEST_CASE("the decoder of an encoder-decoder continues its own output", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("t5", "t5_v1_1", "umt5", "bart", "mbart", "m2m_100", "pegasus");
  const auto chunk = GENERATE(std::int64_t{1}, std::int64_t{3}, std::int64_t{7});
  CAPTURE(name, chunk);
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = model_of(golden.source);
  const at::Tensor source = golden.tokens.narrow(1, 0, 6), target = golden.tokens.narrow(1, 6, 7);
  const at::Tensor expected = model.logits(model.hidden_states(source, target));
  KvCache cache = model.make_cache(room_for(target), source);
  CHECK(largest_difference(cached_logits(model, target, cache, chunk), expected) <= kCacheRounding);
  const auto cost = *kv_cache_cost(golden.source.spec, DType::kF64);
  CHECK(cache.bytes() == 2 * (7 * cost.per_token() + 6 * cost.cross_per_token()));
  KvCache other = model.make_cache(room_for(target), golden.tokens.narrow(1, 1, 6));
  CHECK(largest_difference(cached_logits(model, target, other, chunk), expected) >= kWrongCache);
}

TEST_CASE("a bf16 cache gives the logits of a whole pass to bf16's precision", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "bloom_12", "gpt2");
  const auto capacity = GENERATE(std::int64_t{13}, std::int64_t{16}, std::int64_t{60});
  CAPTURE(name, capacity);
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = model_of(golden.source, at::kBFloat16);
  KvCache cache = model.make_cache({.batch = 2, .capacity = capacity, .window = {}, .sinks = 0});
  const at::Tensor logits = cached_logits(model, golden.tokens, cache, 1);
  const double whole = largest_difference(whole_logits(model, golden.tokens), golden.logits);
  CHECK(largest_difference(logits, golden.logits) <= 2 * whole);
}

TEST_CASE("one token's attention in fp32 and bf16 is that in fp64", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto [type, precision] =
      GENERATE(std::pair(at::kFloat, 1e-5), std::pair(at::kBFloat16, 5e-2));
  const auto [heads, groups, width] = GENERATE(std::tuple(9, 3, 64), std::tuple(5, 1, 24),
                                               std::tuple(4, 4, 7), std::tuple(8, 2, 128));
  for (const std::int64_t used : {1, 3, 4, 50}) {
    CAPTURE(type, heads, groups, width, used);
    const std::int64_t slots = 50;
    const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type); };
    // As projections store them: [B, T, H, d].
    const at::Tensor q = random({3, 1, heads, width}).transpose(1, 2);
    const at::Tensor k = random({3, groups, slots, width}), v = random({3, groups, slots, width});
    at::Tensor bias = at::randn({1, heads, 1, used});
    bias.narrow(3, 0, used / 2).fill_(-std::numeric_limits<double>::infinity());
    for (const bool biased : {false, true}) {
      for (const std::optional<double> softcap : {std::optional<double>(), std::optional(0.7)}) {
        const auto attend = [&](at::ScalarType of) {
          return attend_from_one_token(
              {q.to(of), k.to(of), v.to(of)}, used,
              biased ? bias.to(of == at::kDouble ? of : at::kFloat) : at::Tensor(), 0.3, softcap);
        };
        CHECK(attend(type).scalar_type() == type);
        CHECK(largest_difference(attend(type), attend(at::kDouble)) <= precision);
      }
    }
  }
}

TEST_CASE("a bf16 cache on a CPU grows with its tokens", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "bloom_12", "mistral");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const at::Tensor tokens = golden.tokens.repeat({1, 11});  // past two limits of 64 and 128 slots
  const at::Tensor exact = whole_logits(model_of(golden.source), tokens);
  const Transformer model = model_of(golden.source, at::kBFloat16);
  const double whole = largest_difference(whole_logits(model, tokens), exact);
  for (const std::int64_t chunk : {1, 50}) {
    CAPTURE(chunk);
    KvCache cache = model.make_cache(room_for(tokens));
    const std::uint64_t first = cache.bytes();
    CHECK(largest_difference(cached_logits(model, tokens, cache, chunk), exact) <= 2 * whole);
    CHECK((cache.bytes() > first) == (std::string_view(name) != "mistral"));  // a short window
    CHECK(cache.bytes() == static_cast<std::uint64_t>(tokens.size(0)) *
                               kv_cache_cost(golden.source.spec, DType::kBF16)
                                   ->at(static_cast<std::uint64_t>(tokens.size(1))));
  }
}

TEST_CASE("RoPE angles at any position equal those of the whole table", "[uptrain]") {
  const RopeSpec spec = load_golden_case("gptj").source.spec.rope;
  const at::TensorOptions wide(at::kDouble);
  const RopeTable whole = make_rope_table(spec, 0, 3000, 3000, wide);
  RopePositions positions(spec, 3000, wide);
  for (const std::int64_t first : {0, 1, 1023, 1025, 2990, 7}) {
    const RopeTable part = positions.at(first, 10);
    CHECK(part.cosine.equal(whole.cosine.narrow(0, first, 10)));
    CHECK(part.sine.equal(whole.sine.narrow(0, first, 10)));
    CHECK(part.interleaved == whole.interleaved);
  }
}

TEST_CASE("greedy decoding takes the most likely token", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const GoldenCase golden = load_golden_case("bloom_12");
  const Transformer model = model_of(golden.source);
  const at::Tensor prompt = golden.tokens.narrow(1, 0, 8);
  KvCache cache = model.make_cache({.batch = 2, .capacity = 14, .window = {}, .sinks = 0});
  at::Tensor logits = read_tokens(model, prompt, cache, 3);
  const at::Tensor decoded = decode_greedily(model, logits, cache, 6);
  at::Tensor text = prompt;
  for (int i = 0; i < 6; ++i) {
    const at::Tensor all = whole_logits(model, text);
    text = at::cat({text, all.select(1, all.size(1) - 1).argmax(-1, true)}, 1);
  }
  CHECK(decoded.equal(text.narrow(1, 8, 6)));
  CHECK(cache.length() == 14);
}

TEST_CASE("caches that do not fit the model are refused", "[uptrain]") {
  const auto load = [](const char* name) { return model_of(load_golden_case(name).source); };
  const Transformer llama = load("llama");
  const auto make = [](const Transformer& model, const KvCacheSettings& settings) {
    return [&model, settings] { model.make_cache(settings); };
  };
  const KvCacheSettings plain{.batch = 2, .capacity = 6, .window = {}, .sinks = 0};
  CHECK_THAT(refusal_of(make(load("bert"), plain)), is_wrong_usage("bidirectional"));
  CHECK_THAT(refusal_of(make(llama, {.batch = 2, .capacity = 0, .window = {}, .sinks = 0})),
             is_wrong_usage("of 0 tokens"));
  CHECK_THAT(refusal_of(make(llama, {.batch = 2, .capacity = 6, .window = {}, .sinks = 2})),
             is_wrong_usage("need a window"));
  CHECK_THAT(refusal_of(make(load("gpt2"), {.batch = 2, .capacity = 6, .window = 3, .sinks = 2})),
             is_wrong_usage("learned"));
  CHECK_THAT(refusal_of(make(load("t5"), {.batch = 2, .capacity = 6, .window = 3, .sinks = 0})),
             is_wrong_usage("relative positions"));
  CHECK_THAT(refusal_of(make(load("t5"), plain)), is_wrong_usage("source"));
  const at::Tensor tokens = load_golden_case("llama").tokens;
  KvCache cache = llama.make_cache(plain);
  CHECK_THAT(refusal_of([&] { read_tokens(llama, tokens, cache, 4); }),
             is_wrong_usage("1 more tokens after 6", "takes no more"));
  KvCache sinks = llama.make_cache({.batch = 2, .capacity = 13, .window = 4, .sinks = 2});
  CHECK_THAT(refusal_of([&] { llama.hidden_states(tokens, sinks); }),
             is_wrong_usage("13 more tokens after 0", "takes up to 6"));
  read_tokens(llama, tokens, sinks, 8);  // the most tokens it takes at once
  CHECK(sinks.length() == 13);
}

}  // namespace regroup

// Results compared with their records: correct ones pass, and every kind of error is detected.
#include "converter/convert/verify_conversion.h"

#include <algorithm>
#include <functional>
#include <set>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/converter/conversion.h"
#include "tests/converter/convert/converted.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using enum AttentionRole;

using Heads = std::vector<std::int64_t>;
using Names = std::vector<std::string>;
constexpr const char* kFused = "transformer.h.1.self_attention.query_key_value.weight";

// With contiguous groups and with reordered heads.
Converted some_conversion() {
  return Converted(GENERATE(ConversionRequest{.kv_heads = {4}}, reordered()));
}

TEST_CASE("an undamaged conversion is verified", "[converter]") {
  const Converted converted = some_conversion();
  const Verification found = verified(converted.source, converted.result);
  CHECK(found.passed());
  const bool moved = converted.record().at("grouping") == "similar";
  // Weight and bias of two layers. If heads moved, also the output projections.
  CHECK(found.computed == (moved ? 6 : 4));
  CHECK(found.copied + found.computed == open_checkpoint(converted.source).tensors().size());
}

TEST_CASE("a GGUF file made with Q8_0 is verified", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path result = directory / "result.gguf";
  convert(golden("llama_mha"), result,
          {.kv_heads = {2}, .container = Container::kGguf, .dtype = DType::kQ8_0});
  CHECK(record_of(open_model(result)).dtype.value == "Q8_0");
  CHECK(verified(golden("llama_mha"), result).passed());
}

TEST_CASE("one flipped bit is detected in a copied tensor and in a pooled one", "[converter]") {
  const auto* name = GENERATE("transformer.h.0.mlp.dense_4h_to_h.weight", kFused);
  const Converted converted = some_conversion();
  converted.damage(name, [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  CHECK(converted.wrong_tensors() == Names{name});
  CHECK(converted.wrong_settings().empty());
}

TEST_CASE("swapped groups are detected", "[converter]") {
  const Converted converted = some_conversion();
  converted.damage(kFused, [](std::string& bytes) {  // four groups of equal size in sequence
    const std::size_t group = bytes.size() / 4;
    bytes = bytes.substr(group, group) + bytes.substr(0, group) + bytes.substr(2 * group);
  });
  const Verification found = verified(converted.source, converted.result);
  REQUIRE(found.tensors.size() == 1);
  CHECK(found.tensors[0].name == kFused);
  CHECK(found.tensors[0].values->largest > 0.1);
}

TEST_CASE("wrong slopes are detected", "[converter]") {
  const Converted converted = some_conversion();
  const bool by_layer = converted.record().at("alibi").at("slopes").front().is_array();
  converted.change_config([&](Json& config) {
    Json& slopes = config["regroup"]["alibi"]["slopes"];
    (by_layer ? slopes[1] : slopes)[3] = 0.25000001;
  });
  CHECK(converted.wrong_settings() ==
        Names{by_layer ? "regroup.alibi.slopes[1][3]" : "regroup.alibi.slopes[3]"});
}

TEST_CASE("a wrong config is detected whatever the order of its keys", "[converter]") {
  const Converted converted = some_conversion();
  converted.change_config([](Json& config) {
    const Json layers = config["n_layer"];
    config.erase("n_layer");
    config["n_layer"] = layers;  // moves it to the end
  });
  CHECK(converted.wrong_settings().empty());
  converted.change_config([](Json& config) { config["layer_norm_epsilon"] = 1e-6; });
  CHECK(converted.wrong_settings() == Names{"layer_norm_epsilon"});
}

TEST_CASE("additional and missing and retyped tensors are detected", "[converter]") {
  const Converted converted;
  TinyModel model = tiny_bloom();  // only its type is used
  model.tensors.clear();
  const Checkpoint result = open_checkpoint(converted.result);
  for (const TensorInfo& tensor : result.tensors()) {
    model.tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, bytes_of(result, tensor.name)});
  }
  BuiltTensor& norm = model.tensor("transformer.ln_f.bias");
  norm = tensor_of(norm.name, DType::kF64, norm.shape, values_of(norm));
  model.remove("transformer.ln_f.weight");
  model.tensors.push_back(varied_tensor("stranger", DType::kF32, {1}));
  put_checkpoint(converted.weights, model.tensors, result.metadata());
  const Names wrong = converted.wrong_tensors();
  CHECK(std::set<std::string>(wrong.begin(), wrong.end()) ==
        std::set<std::string>{"transformer.ln_f.bias", "transformer.ln_f.weight", "stranger"});
}

TEST_CASE("results of every kind of conversion are verified", "[converter]") {
  const auto [name, request] = GENERATE(table<const char*, ConversionRequest>(
      {{"gpt2", {.kv_heads = {3}}},
       {"llama_mha", {.kv_heads = {2, 1}}},
       {"llama_mha", {.kv_heads = {2}, .pooling = {PoolMethod::kFirst}}},
       {"llama_mha", {.kv_heads = {2}, .pooling = {PoolMethod::kRandom, 7}}},
       {"llama_mha", {.kv_heads = {3}, .dtype = DType::kBF16}},
       {"llama_mha", {.kv_heads = {3}, .target = "expanded"}},
       {"llama_mha", {.kv_heads = {3}, .container = Container::kGguf}},
       {"llama_mha", {.kv_heads = {3}, .container = Container::kTorch}},
       {"llama_sharded", {.kv_heads = {2}, .max_shard_bytes = 9000}},
       {"gpt2", {.kv_heads = {2}, .container = Container::kGguf}},
       {"gpt_neox", {.kv_heads = {1}, .target = "auto"}},
       {"gpt_neox", {.kv_heads = {3}, .target = "gpt_neox"}},
       {"llama_mha", {.kv_heads = {3}, .target = "LlamaForCausalLM"}},
       {"qwen2_windows", {.kv_heads = {3}, .target = "qwen2"}},
       {"smollm3", {.kv_heads = {2}, .target = "smollm3"}},
       {"llama_mha", {.kv_heads = {3}, .positions = PositionChange::kAlibi}},
       {"t5", {.kv_heads = {3}}},
       {"t5", {.kv_heads = {4}, .roles = {kCross}}},
       {"t5", {.kv_heads = {4}, .roles = {kSelf, kCross, kEncoder}}},
       {"gguf/llama.gguf", {.kv_heads = {1}}},
       {"llama_torch", {.kv_heads = {1}}}}));
  CAPTURE(name, request.kv_heads, request.target);
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  convert(golden(name), result, request);
  const Verification found = verified(golden(name), result);
  for (const TensorDifference& difference : found.tensors) {
    FAIL_CHECK(difference.name);
  }
  for (const JsonDifference& difference : found.settings) {
    FAIL_CHECK(difference.path);
  }
  CHECK(found.computed > 0);
}

// Reversed head orders for a model's attentions, shared by layers that share a bias.
HeadOrder reversed(const ModelSpec& spec) {
  HeadOrder order;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      Heads heads;
      for (std::int64_t h = spec.kv_heads_of(role)[i]; h-- > 0;) {
        heads.push_back(h);
      }
      order.set(role, i, std::move(heads));
    }
  }
  return order;
}

TEST_CASE("reordered results of all families and containers are verified", "[converter]") {
  const auto [name, request] = GENERATE(table<const char*, ConversionRequest>(
      {{"llama_mha", {.kv_heads = {3}}},
       {"llama", {.kv_heads = {2}}},  // three query heads move with each kv head
       {"llama_mha", {.kv_heads = {3}, .target = "expanded"}},
       {"llama_mha", {.kv_heads = {3}, .container = Container::kGguf}},
       {"llama_mha", {.kv_heads = {2}, .pooling = {PoolMethod::kRandom, 7}}},
       {"gpt2", {.kv_heads = {3}}},
       {"gpt2", {.kv_heads = {2}, .container = Container::kGguf}},
       {"gpt_neox", {.kv_heads = {1}, .target = "auto"}},
       {"nemotron_nas", {.kv_heads = {}}},
       {"t5", {.kv_heads = {3}}},
       {"t5", {.kv_heads = {4}, .roles = {kSelf, kCross, kEncoder}}},
       {"umt5", {.kv_heads = {4}, .roles = {kCross}}}}));
  CAPTURE(name, request.kv_heads, request.target);
  ConversionRequest moved = request;
  moved.grouping = "similar";
  moved.order = reversed(open_model(golden(name)).spec);
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  convert(golden(name), result, moved);
  const Model source = open_model(golden(name)), model = open_model(result);
  CHECK(recorded_request(source, model, nullptr).order.orders() == moved.order.orders());
  CHECK(verified(golden(name), result).passed());
}

TEST_CASE("a wrong recorded head order is detected", "[converter]") {
  const Converted converted(reordered());
  converted.change_config([](Json& config) {
    Json& order = config["regroup"]["query_order"][1];
    std::swap(order[0], order[3]);
  });
  const Names wrong = converted.wrong_tensors();
  CHECK(std::set<std::string>(wrong.begin(), wrong.end()) ==
        std::set<std::string>{kFused, "transformer.h.1.self_attention.query_key_value.bias",
                              "transformer.h.1.self_attention.dense.weight"});
  const Names settings = converted.wrong_settings();  // the slopes and the weight file's metadata
  CHECK(std::count(settings.begin(), settings.end(), "regroup.alibi.slopes[1][0]") == 1);
  CHECK(std::count(settings.begin(), settings.end(), "__metadata__.regroup.query_order") == 1);
}

}  // namespace
}  // namespace regroup

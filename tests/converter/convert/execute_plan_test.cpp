// The files that conversions write.
#include "converter/convert/execute_plan.h"

#include <algorithm>
#include <set>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "converter/convert/tensor_parts.h"
#include "converter/convert/verify_conversion.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

TEST_CASE("golden K and V are pooled bit for bit from one file or shards", "[converter]") {
  for (const auto& [name, groups] : {std::pair{"llama_bf16", 4},
                                     std::pair{"llama_fp16", 1},
                                     std::pair{"llama_mha", 3},
                                     std::pair{"llama_mha", 2},
                                     std::pair{"qwen3", 2},
                                     std::pair{"gemma", 3},
                                     std::pair{"olmo", 2},
                                     std::pair{"olmo2", 2},
                                     std::pair{"phi", 2},
                                     std::pair{"phi_qk_layernorm", 1},
                                     std::pair{"stablelm", 3},
                                     std::pair{"starcoder2", 2},
                                     std::pair{"nemotron", 3},
                                     std::pair{"falcon_40b", 2},
                                     std::pair{"falcon_11b", 1},
                                     std::pair{"phi3", 3},
                                     std::pair{"phi3", 2},
                                     std::pair{"cohere", 2},
                                     std::pair{"granite", 3},
                                     std::pair{"smollm3", 2},
                                     std::pair{"llava", 3},
                                     std::pair{"llava", 2},
                                     std::pair{"qwen2_5_vl", 3},
                                     std::pair{"qwen3_vl", 2},
                                     std::pair{"internlm2", 3},
                                     std::pair{"olmo3", 3},
                                     std::pair{"olmo3", 2},
                                     std::pair{"gemma2", 3},
                                     std::pair{"gemma3", 2},
                                     std::pair{"cohere2", 3},
                                     std::pair{"qwen2_windows", 2},
                                     std::pair{"minicpm", 3},
                                     std::pair{"olmoe", 3},
                                     std::pair{"olmoe", 2},
                                     std::pair{"qwen2_moe", 3},
                                     std::pair{"qwen3_moe", 2},
                                     std::pair{"mixtral", 3},
                                     std::pair{"mixtral", 2},
                                     std::pair{"granitemoe", 3},
                                     std::pair{"deepseek", 3},
                                     std::pair{"deepseek", 2},
                                     std::pair{"chatglm2", 3},
                                     std::pair{"chatglm2", 2},
                                     std::pair{"glm", 3},
                                     std::pair{"glm", 2}}) {
    CAPTURE(name, groups);
    const TemporaryDirectory directory;
    convert(golden(name), directory / "result", {.kv_heads = {groups}, .max_shard_bytes = 9000});
    const Checkpoint result = open_checkpoint(directory / "result");
    CHECK(result.files().size() > 1);
    const Checkpoint pooled = open_checkpoint(golden(name) / "pooled.safetensors");
    for (const TensorInfo& expected : pooled.tensors()) {
      const std::string prefix = fmt::format("g{}/", groups);
      if (expected.name.starts_with(prefix)) {
        CHECK((bytes_of(result, expected.name.substr(prefix.size())) ==
               bytes_of(pooled, expected.name)));
      }
    }
  }
}

TEST_CASE("a sharded source gives the same tensors as a single file", "[converter]") {
  const TemporaryDirectory directory;
  const TinyModel tiny = tiny_bloom();
  put_model(directory / "single/model", tiny);
  put_sharded_model(directory / "sharded/model", tiny, 3);
  convert(directory / "single/model", directory / "a", {.kv_heads = {3}});
  convert(directory / "sharded/model", directory / "b", {.kv_heads = {3}});
  CHECK((tree_of(directory / "a") == tree_of(directory / "b")));
  CHECK((tree_of(directory / "b").size() == 5));  // config, card, weights and two files of code
}

TEST_CASE("converting twice gives the same bytes", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_bloom());
  for (const std::uint64_t shard_bytes : {std::uint64_t{2000}, kDefaultShardBytes}) {
    convert(directory / "source", directory / "a",
            {.kv_heads = {4}, .max_shard_bytes = shard_bytes});
    convert(directory / "source", directory / "b",
            {.kv_heads = {4}, .max_shard_bytes = shard_bytes});
    CHECK((tree_of(directory / "a") == tree_of(directory / "b")));
    fs::remove_all(directory / "a");
    fs::remove_all(directory / "b");
  }
}

TEST_CASE("the result does not depend on the number of threads", "[converter]") {
  const TemporaryDirectory directory;
  const Model model = open_model(put_sharded_model(directory / "source", tiny_llama(), 5));
  const ConversionPlan plan = plan_conversion(model, {.kv_heads = {3}, .max_shard_bytes = 3000});
  const std::atomic<bool> stop{false};
  const auto tree_with = [&](int threads) {
    const fs::path result = directory / std::to_string(threads);
    execute_conversion(plan, model, result, {}, stop, {}, threads);
    return tree_of(result);
  };
  const auto alone = tree_with(1);
  CHECK(alone.size() > 3);
  for (const int threads : {2, 3, 4}) {
    CHECK((tree_with(threads) == alone));
  }
}

// A model whose keys and values (6 MiB each) are averaged in parts.
TinyModel large_llama() { return tiny_llama({.layers = 1, .head_dim = 128, .hidden_size = 1024}); }

TEST_CASE("large tensors written in parts equal tensors computed whole", "[converter]") {
  const TemporaryDirectory directory;
  const Model model = open_model(put_model(directory / "source", large_llama()));
  for (const Container container : {Container::kSafetensors, Container::kTorch}) {
    const ConversionPlan plan = plan_conversion(model, {.kv_heads = {3}, .container = container});
    AttentionPooler pooler(plan, model.checkpoint);
    const std::atomic<bool> stop{false};
    const fs::path result = directory / std::to_string(static_cast<int>(container));
    execute_conversion(plan, model, result, {}, stop);
    const Checkpoint written = open_checkpoint(result);
    std::size_t in_parts = 0;
    for (const TensorStep& step : plan.steps) {
      in_parts += parts_of(step, model.checkpoint).empty() ? 0 : 1;
      const auto whole = make_tensor(step, plan, model.checkpoint, pooler);
      const std::string bytes = bytes_of(written, step.output.name);
      CHECK(std::ranges::equal(std::as_bytes(std::span(bytes)), whole));
    }
    CHECK(in_parts == 2);
  }
}

TEST_CASE("companions are copied and old weights and indices are not", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = put_sharded_model(directory / "source", tiny_llama(), 4);
  put_file(source / "tokenizer.json", std::string(100'000, 't'));
  put_file(source / "empty.txt", "");
  put_file(source / "pytorch_model.bin", "stale");
  put_file(source / "pytorch_model.bin.index.json", "{}");
  convert(source, directory / "result", {.kv_heads = {4}});
  auto tree = tree_of(directory / "result");
  CHECK(tree.size() == 5);
  CHECK(tree.at("tokenizer.json") == std::string(100'000, 't'));
  CHECK(tree.at("empty.txt").empty());
  CHECK(tree.contains("model.safetensors"));
  CHECK(Json::parse(tree.at("config.json")).at("num_key_value_heads") == 4);
}

TEST_CASE("a snapshot of links converts into plain files", "[converter]") {
  const TemporaryDirectory cache;
  put_model(cache / "blobs", tiny_llama());
  put_file(cache / "blobs" / "tokenizer.json", "{}");
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::create_directories(cache / "snapshots" / "abc");
    fs::create_symlink(fs::path("../../blobs") / name, cache / "snapshots" / "abc" / name);
  }
  convert(cache / "snapshots" / "abc", cache / "result", {.kv_heads = {4}});
  for (const auto& entry : fs::directory_iterator(cache / "result")) {
    CHECK_FALSE(entry.is_symlink());
  }
  CHECK((tree_of(cache / "result").size() == 4));
}

TEST_CASE("progress ends at the planned number of bytes", "[converter]") {
  const TemporaryDirectory directory;
  const Model model = open_model(put_model(directory / "source", tiny_gpt2()));
  const ConversionPlan plan = plan_conversion(model, {.kv_heads = {4}});
  std::uint64_t last = 0;
  std::multiset<std::string> expected, reported;
  for (const TensorStep& step : plan.steps) {
    expected.insert(step.output.name);
  }
  const std::atomic<bool> stop{false};
  execute_conversion(
      plan, model, directory / "result",
      [&](std::uint64_t done, std::string_view tensor) {
        CHECK(done >= last);
        reported.emplace(tensor);
        last = done;
      },
      stop);
  CHECK(last == plan.output_bytes);
  CHECK((reported == expected));
}

TEST_CASE("a conversion and its verification need no progress function", "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(put_model(directory / "source", tiny_llama()));
  const ConversionPlan plan = plan_conversion(source, {.kv_heads = {4}});
  std::vector<std::string> told;
  const std::atomic<bool> stop{false};
  execute_conversion(
      plan, source, directory / "told",
      [&](auto, std::string_view tensor) { told.emplace_back(tensor); }, stop);
  CHECK(told.size() == plan.steps.size());
  execute_conversion(plan, source, directory / "silent", ConversionProgress(), stop);
  CHECK(tree_of(directory / "silent") == tree_of(directory / "told"));
  const Model result = open_model(directory / "silent");
  CHECK(verify_conversion(plan, source, result, ComparisonProgress()).passed());
}

}  // namespace
}  // namespace regroup

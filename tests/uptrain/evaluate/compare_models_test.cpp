// Models written as another architecture compute the same, and the comparison detects differences.
#include "uptrain/evaluate/compare_models.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

LogitComparison compare(const fs::path& source, const fs::path& result,
                        const std::vector<std::int64_t>& kv_heads) {
  const Model model = open_model(source);
  const std::atomic<bool> stop{false};
  return compare_logits(plan_conversion(model, {.kv_heads = kv_heads}), model, open_model(result),
                        stop);
}

struct Retarget {
  const char* source;
  const char* target;
  std::int64_t kv_heads;
};

constexpr Retarget kExact[] = {
    {"gpt_neox", "phi", 2},
    {"gpt_neox_sequential", "starcoder2", 3},
    {"gptj", "phi", 3},
    {"gpt2", "gpt_bigcode", 1},
    {"opt", "gpt_bigcode", 1},
    {"gpt_neox", "gpt_neox", 2},
    {"llama_rope_yarn", "llama", 2},
    {"equal_heads", "phi3", 4},
};

TEST_CASE("a model written as another architecture computes what its pooled source computes",
          "[uptrain]") {
  for (const Retarget& retarget : kExact) {
    CAPTURE(retarget.source, retarget.target);
    const TemporaryDirectory directory;
    convert(golden(retarget.source), directory / "result",
            {.kv_heads = {retarget.kv_heads}, .target = retarget.target});
    const LogitComparison same =
        compare(golden(retarget.source), directory / "result", {retarget.kv_heads});
    CHECK(same.largest_logit > 1.0);
    CHECK(same.largest_difference < 1e-5 * same.largest_logit);
  }
}

TEST_CASE("a Llama with different kv heads per layer computes the same as Nemotron-NAS",
          "[uptrain]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama({.hidden_size = 24, .intermediate_size = 256}));
  convert(directory / "source", directory / "result",
          {.kv_heads = {12, 3}, .target = "nemotron-nas"});
  const LogitComparison same = compare(directory / "source", directory / "result", {12, 3});
  CHECK(same.largest_logit > 0.1);
  CHECK(same.largest_difference < 1e-5 * same.largest_logit);
  const LogitComparison other = compare(directory / "source", directory / "result", {12, 12});
  CHECK(other.largest_difference > 1e-2 * same.largest_logit);
}

TEST_CASE("the comparison detects a different setting", "[uptrain]") {
  const TemporaryDirectory directory;
  convert(golden("gpt_neox"), directory / "result", {.kv_heads = {2}, .target = "phi"});
  const std::string config = bytes_of_file(directory / "result" / "config.json");
  put_file(directory / "result" / "config.json", with_member(config, {"layer_norm_eps"}, "0.3"));
  const LogitComparison other = compare(golden("gpt_neox"), directory / "result", {2});
  CHECK(other.largest_difference > 1e-2);
}

// Sets one layer's norm weights to zero. A quotient of norm weights would divide by zero.
void clear_norm(const fs::path& file, const std::string& name) {
  std::string bytes = bytes_of_file(file);
  const Checkpoint checkpoint = open_checkpoint(file);
  const TensorInfo& tensor = checkpoint.at(name);
  bytes.replace(tensor.begin, tensor.bytes(), tensor.bytes(), '\0');
  put_file(file, bytes);
}

TEST_CASE("norm weights of zero are folded without a division by zero", "[uptrain]") {
  const TemporaryDirectory directory;
  fs::copy(golden("gpt_neox"), directory / "source");
  clear_norm(directory / "source" / "model.safetensors",
             "gpt_neox.layers.1.input_layernorm.weight");
  convert(directory / "source", directory / "result", {.kv_heads = {2}, .target = "phi"});
  const LogitComparison same = compare(directory / "source", directory / "result", {2});
  CHECK(same.largest_logit > 1.0);
  CHECK(same.largest_difference < 1e-5 * same.largest_logit);
}

}  // namespace
}  // namespace regroup

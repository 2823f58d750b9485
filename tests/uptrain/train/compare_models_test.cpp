// Models written as another architecture compute the same, and the comparison detects differences.
#include <catch2/catch_test_macros.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "uptrain/train/evaluate.h"

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

TEST_CASE("rounding that changes the choice of experts is told from another form", "[uptrain]") {
  const Model source = open_model(golden("mixtral_stacked"));
  const ConversionRequest exact = {.dtype = DType::kF32};
  const ConversionPlan reference = plan_conversion(source, exact);
  const std::atomic<bool> stop{false};
  const auto forms = [&](const ConversionRequest& request, const fs::path& result) {
    ConversionRequest wide = request;
    wide.dtype = DType::kF32;
    return compare_forms(reference, plan_conversion(source, wide), source, open_model(result),
                         stop);
  };
  const TemporaryDirectory directory;
  convert(source.path, directory / "rounded", {.dtype = DType::kBF16});
  const FormComparison rounded = forms({}, directory / "rounded");
  const double largest = rounded.logits.largest_logit;
  CHECK(compare_logits(reference, source, open_model(directory / "rounded"), stop)
            .largest_difference > 0.1 * largest);
  CHECK(rounded.logits.largest_difference < 1e-5 * largest);
  CHECK(rounded.largest_rounding > 1e-4);
  CHECK(rounded.largest_rounding < 1.0 / 256);

  // Other weights than planned, and other heads than the reference's.
  clear_norm(directory / "rounded" / "model.safetensors", "model.layers.1.input_layernorm.weight");
  CHECK(forms({}, directory / "rounded").largest_rounding == 1.0);
  convert(source.path, directory / "grouped", {.kv_heads = {1}, .dtype = DType::kBF16});
  const FormComparison grouped = forms({.kv_heads = {1}}, directory / "grouped");
  CHECK(grouped.largest_rounding < 1.0 / 256);
  CHECK(grouped.logits.largest_difference > 0.1 * largest);
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

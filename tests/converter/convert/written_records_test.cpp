// The text of every kind of record, in config.json and in metadata, and what the model card says of
// it. tests/golden/records/written.txt has what regroup 0.1.0 wrote, with its version as VERSION.
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "converter/convert/model_card.h"
#include "formats/version.h"
#include "tests/converter/convert/converted.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A refiner that only has a recipe.
class RecipeOnly : public AttentionRefiner {
 public:
  RefinementReport refine(AttentionRole, std::size_t, std::span<const std::int64_t>,
                          AttentionHeads&) override {
    return {};
  }
  Recipe recipe() const override {
    return {.tokens = 5984U,
            .context = 32U,
            .steps = 2U,
            .tokens_per_step = 64U,
            .learning_rate = "auto"};
  }
  double training_token_equivalents(const ModelSpec&) const override { return 0.0; }
};

// Pooled with statistics that were not kept, on a GPU, and then distilled.
Pooling on_a_text() {
  Pooling pooling(PoolMethod::kLowrank);
  pooling.device = "cuda:1";
  pooling.discarded_statistics = {8192, "4c1d0f3a4c1d0f3a"};
  pooling.distillation = Recipe{.tokens = 65536U, .context = 256U, .batch = 4U, .steps = 32U};
  return pooling;
}

// What the command adds after its tensors are written.
ConversionRecord measured() {
  const GroupReport group{.key_energy = 2.0 / 3.0, .value_energy = 0.5};
  ConversionRecord facts;
  facts.layers = std::vector{
      measurements_of({AttentionRole::kSelf, 0, {group}, true, std::nullopt}),
      measurements_of(
          {AttentionRole::kSelf, 1, {}, false, RefinementReport{0.123456789, 1e-7, 0.03}})};
  facts.checksums = TensorChecksums{{"a", "0123456789abcdef"}, {"b", "fedcba9876543210"}};
  return facts;
}

// The model card's sections about the record.
std::string sections_of(const std::string& card) {
  const std::size_t begin = std::min(card.find("\n## "), card.size());
  return card.substr(begin, card.find("\n## How to load it") - begin);
}

std::string all_versions_hidden(std::string text) {
  const std::string version(kVersion);
  for (std::size_t at = 0; (at = text.find(version, at)) != text.npos;) {
    text.replace(at, version.size(), "VERSION");
  }
  return text;
}

std::string written(const std::string& name, const fs::path& path,
                    const ConversionRequest& request) {
  const Model source = open_model(path);
  const ConversionPlan plan = plan_conversion(source, request);
  std::string text = fmt::format("==== {}\n", name);
  if (!plan.config_text.empty()) {
    const std::string config =
        config_with_facts(plan.config_text, request.refiner ? measured() : ConversionRecord());
    text += config.substr(config.find("  \"regroup\": {"));
    text += sections_of(model_card(Json::parse(config), plan.target, ""));
  }
  for (const auto& [key, value] : plan.metadata) {
    text += key.starts_with("regroup.") ? fmt::format("{}={}\n", key, value) : "";
  }
  if (plan.gguf) {
    for (const GgufMetadata::Entry& entry : plan.gguf->entries()) {
      text += entry.key.starts_with("regroup.")
                  ? fmt::format("gguf {}={}\n", entry.key, plan.gguf->text(entry.key).value_or("?"))
                  : "";
    }
  }
  return text;
}

std::string all_written() {
  const TemporaryDirectory directory;
  const fs::path records = golden("records"), trained = directory / "trained";
  fs::copy(records / "mean4", trained);
  fs::copy_file(records / "trained" / "config.json", trained / "config.json",
                fs::copy_options::overwrite_existing);
  ConversionRequest fitted{.kv_heads = {4}, .pooling = on_a_text()};
  fitted.refiner = std::make_shared<RecipeOnly>();
  std::string text;
  text += written("mean", golden("llama_bf16"), {.kv_heads = {4}});
  text += written("layers differ", golden("llama_bf16"),
                  {.kv_heads = {4, 2}, .pooling = {PoolMethod::kRandom, 7}, .dtype = DType::kF16});
  text += written("moved heads", golden("llama_bf16"), reordered());
  text += written("on a text", golden("llama_bf16"), fitted);
  text += written("encoder and decoder", golden("t5"), {.kv_heads = {2}});
  text += written("slopes", golden("bloom"), {.kv_heads = {2}});
  text += written("moved slopes", put_model(directory / "bloom", tiny_bloom()), reordered());
  text +=
      written("positions", golden("t5"), {.kv_heads = {4}, .positions = PositionChange::kAlibi});
  text += written("expanded", golden("llama_bf16"), {.kv_heads = {4}, .target = "expanded"});
  text += written("architecture", golden("gpt2"), {.kv_heads = {1}, .target = "auto"});
  text += written("trained before", trained, {.kv_heads = {2}});
  text += written("gguf", trained, {.kv_heads = {2}, .container = Container::kGguf});
  text += written("from gguf", records / "mean4.gguf",
                  {.kv_heads = {2}, .container = Container::kSafetensors});
  return all_versions_hidden(text);
}

}  // namespace

TEST_CASE("records are written as ever, in config and metadata and card", "[converter]") {
  const std::string text = all_written();
  CHECK(text == bytes_of_file(golden("records/written.txt")));
}

}  // namespace regroup

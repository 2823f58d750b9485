// The published pretraining length of a model as the default.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

// A config with the shape of Llama 2 7B converted to 8 kv heads, without weights.
UptrainSettings run_of_llama_2(const TemporaryDirectory& directory) {
  TinyModel model = golden_model("llama");
  model.set("hidden_size", "4096")
      .set("num_hidden_layers", "32")
      .set("num_attention_heads", "32")
      .set("num_key_value_heads", "8")
      .set("head_dim", "128")
      .set("vocab_size", "32000")
      .set("max_position_embeddings", "4096")
      .set("rope_parameters", R"({"rope_type": "default", "rope_theta": 10000.0})");
  UptrainSettings settings;
  put_file(directory / "model" / "config.json", model.config);
  settings.model = directory / "model";
  settings.output = directory / "out";
  settings.data = {directory / "text.bin"};
  settings.alpha = 0.05;
  return settings;
}

}  // namespace

TEST_CASE("a recognised model gets its published pretraining length and the reference",
          "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = run_of_llama_2(directory);
  take_published_length(settings);
  CHECK(settings.pretrain_tokens == 2'000'000'000'000);
  CHECK(settings.published == "Llama 2 7B, https://arxiv.org/abs/2307.09288, table 1");
  CHECK_NOTHROW(settings.validate());
}

TEST_CASE("an explicit length takes precedence", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = run_of_llama_2(directory);
  SECTION("tokens") { settings.pretrain_tokens = 7; }
  SECTION("pretraining steps") { settings.pretrain_steps = 7; }
  SECTION("steps") {
    settings.alpha.reset();
    settings.steps = 7;
  }
  const auto before = settings.pretrain_tokens;
  take_published_length(settings);
  CHECK(settings.pretrain_tokens == before);
  CHECK(settings.published.empty());
}

TEST_CASE("an alpha of steps that are far smaller than the pretraining's has a note", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = run_of_llama_2(directory);
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(40'000, 256)));
  settings.pretrain_steps = 500'000;
  const auto notes = [&] {
    const Model source = open_model_outline(settings.model);
    const DataLoader data = open_training_data(settings, source.spec);
    return Json(plan_uptraining(settings, source, data).notes).dump();
  };
  CHECK_THAT(notes(), ContainsSubstring("trains on 0.0001 of the tokens of the pretraining, not on "
                                        "0.05: the 2000 billion of Llama 2 7B"));
  settings.accumulation = 512;  // four million tokens in a step
  CHECK_THAT(notes(), !ContainsSubstring("of the tokens of the pretraining"));
}

TEST_CASE("alpha without a known pretraining length is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = run_of_llama_2(directory);
  settings.model = put_model(directory / "other", golden_model("llama"));
  take_published_length(settings);
  CHECK_THAT(refusal_of([&] { settings.validate(); }), is_wrong_usage("alpha is a fraction"));
}

}  // namespace regroup

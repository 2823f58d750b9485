// Text that a model writes, against the distribution that the test computes from its logits.
#include "uptrain/run/sample.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>

#include "formats/model/serving_cost.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "uptrain/model/save_parameters.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

using Sequences = std::vector<std::vector<std::uint32_t>>;

Sequences sampled(const Model& model, const SampleSettings& settings) {
  Sequences sequences;
  sample(
      model, settings,
      [&](std::span<const std::uint32_t> tokens) {
        sequences.emplace_back(tokens.begin(), tokens.end());
      },
      {}, kNeverStopped);
  return sequences;
}

// A model of 8 tokens.
Model small_model(const TemporaryDirectory& directory) {
  return open_model(put_random_llama(directory / "model", R"({"vocab_size": 8})"));
}

}  // namespace

TEST_CASE("as many sequences are written at a time as have caches of a fifth of the memory",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const Model model = small_model(directory);
  const double cache = static_cast<double>(kv_cache_cost(model.spec, DType::kBF16)->at(1));
  const double fifth = 0.2 * whole_memory(at::kCPU).value();
  const auto batch_of_share = [&](double share) {
    return usual_sampling_batch(model, static_cast<std::int64_t>(fifth * share / cache), at::kCPU);
  };
  CHECK(usual_sampling_batch(model, 512, at::kCPU) == 128);
  CHECK(batch_of_share(1.0 / 40.5) == 40);
  CHECK(batch_of_share(1.0) == 8);
}

TEST_CASE("tokens are drawn from the model's distribution", "[uptrain]") {
  const TemporaryDirectory directory;
  const Model model = small_model(directory);
  const SampleSettings settings{
      .tokens = 3 * 6000, .context = 3, .batch = 500, .temperature = 0.5, .first_token = 1};
  std::map<std::uint32_t, std::map<std::uint32_t, double>> counts;
  for (const std::vector<std::uint32_t>& tokens : sampled(model, settings)) {
    REQUIRE(tokens.size() == 3);
    CHECK(tokens[0] == 1);
    counts[tokens[1]][tokens[2]] += 1.0;
  }
  const at::NoGradGuard no_gradients;
  const Transformer transformer = load_transformer(model, at::kFloat, at::kCPU);
  REQUIRE(counts.size() == 8);  // the second token is uniform
  for (std::int64_t second = 0; second < 8; ++second) {
    const at::Tensor logits =
        window_logits(transformer, at::tensor({std::int64_t{1}, second}).view({1, 2}));
    const at::Tensor expected = (logits.select(1, 1) / 0.5).softmax(-1).to(at::kDouble).view({8});
    double drawn = 0.0;
    for (const auto& [token, count] : counts[static_cast<std::uint32_t>(second)]) {
      drawn += count;
    }
    CHECK(std::abs(drawn - 750.0) < 5 * std::sqrt(750.0));
    for (std::uint32_t token = 0; token < 8; ++token) {
      const auto probability = expected[token].item<double>();
      const double count = counts[static_cast<std::uint32_t>(second)][token];
      // Five standard deviations of a binomial count; the seed is fixed.
      CHECK(std::abs(count - drawn * probability) <
            5 * std::sqrt(drawn * probability * (1 - probability)) + 1);
    }
  }
}

TEST_CASE("predictions that are no numbers are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const Model model = small_model(directory);
  const Parameters weights = load_parameters(model.spec, model.checkpoint, at::kFloat, at::kCPU);
  const std::vector<StateTensor> huge{
      {"model.norm.weight", weights.at("model.norm.weight") * 1e30},
      {"lm_head.weight", weights.at("lm_head.weight").sign() * 1e30}};  // sums of both infinities
  overwrite_parameters(huge, model.checkpoint);
  CHECK_THAT(refusal_of([&] { sampled(model, {.tokens = 20, .context = 10, .batch = 2}); }),
             is_bad_input("predictions are not numbers"));
}

TEST_CASE("a text ends at each of several tokens, also of generation_config.json", "[uptrain]") {
  const TemporaryDirectory directory;
  Model model = small_model(directory);
  model.config.erase("eos_token_id");
  const auto continued = [&] {
    const Continuation text{.prompt = {1, 5, 2}, .tokens = 6, .temperature = 0};
    return continue_texts(model, {&text, 1}, Precision::kFp32, at::kCPU, {}, kNeverStopped).front();
  };
  const std::vector<std::uint32_t> whole = continued();
  REQUIRE(whole.size() == 6);
  const std::vector<std::uint32_t> until(whole.begin(), std::ranges::find(whole, whole[3]));
  model.config["eos_token_id"] = {whole[3], model.spec.vocab_size + 5};
  CHECK(continued() == until);
  model.config["eos_token_id"] = model.spec.vocab_size + 5;
  CHECK(continued() == whole);
  put_file(model.path / "generation_config.json",
           fmt::format(R"({{"eos_token_id": [{}, {}]}})", model.spec.vocab_size + 6, whole[3]));
  CHECK(continued() == until);
  model.path /= "model.safetensors";  // a model may be named by its weights
  CHECK(continued() == until);
}

TEST_CASE("a prompt is continued with the likeliest tokens, up to the model's positions",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const Model model = small_model(directory);
  const Continuation text{.prompt = {1, 5, 2}, .tokens = 6, .temperature = 0};
  const auto continued = [&](const Continuation& how) {
    return continue_texts(model, {&how, 1}, Precision::kFp32, at::kCPU, {}, kNeverStopped).front();
  };
  const std::vector<std::uint32_t> written = continued(text);
  const at::NoGradGuard no_gradients;
  const Transformer transformer = load_transformer(model, at::kFloat, at::kCPU);
  std::vector<std::int64_t> all(text.prompt.begin(), text.prompt.end());
  for (const std::uint32_t token : written) {  // each by a pass over everything before it
    const at::Tensor logits = window_logits(
        transformer, at::tensor(all).view({1, static_cast<std::int64_t>(all.size())}));
    CHECK(logits.select(1, std::ssize(all) - 1).argmax().item<std::int64_t>() == token);
    all.push_back(token);
  }
  CHECK((written.size() == 6 || model.config.contains("eos_token_id")));
  CHECK(continued({.prompt = {1, 5, 2}, .tokens = 6, .seed = 3}) ==
        continued({.prompt = {1, 5, 2}, .tokens = 6, .seed = 3}));
  CHECK_THAT(refusal_of([&] { continued({}); }), is_wrong_usage("prompt of 0 tokens"));
}

TEST_CASE("only a table of positions ends a text", "[uptrain]") {
  const std::string name = GENERATE("llama_mha", "bloom", "gpt2");
  CAPTURE(name);
  const Model model = load_golden_case(name).source;
  const auto positions = static_cast<std::size_t>(model.spec.max_positions.value_or(64));
  const std::vector<std::uint32_t> longest(positions, 1);
  const auto continued = [&](const Continuation& how) {
    return continue_texts(model, {&how, 1}, Precision::kFp32, at::kCPU, {}, kNeverStopped).front();
  };
  CHECK(longest_text(model.spec).has_value() == (name == "gpt2"));
  if (name == "gpt2") {
    CHECK_THAT(refusal_of([&] { continued({.prompt = longest}); }),
               is_wrong_usage("prompt", std::to_string(positions)));
    const std::vector<std::uint32_t> shorter(positions - 2, 1);
    CHECK(continued({.prompt = shorter, .tokens = 9, .temperature = 0}).size() <= 2);
  } else {
    const Continuation on{.prompt = longest, .tokens = 3, .temperature = 0};
    CHECK((continued(on).size() == 3 || model.config.contains("eos_token_id")));
  }
}

TEST_CASE("chats take turns, and each turn is the model's own", "[uptrain]") {
  const TemporaryDirectory directory;
  const Model model = small_model(directory);
  const ChatForm form{"test", {1, 2}, {6, 3}, {7, 2}};
  SampleSettings settings{.tokens = 4000, .context = 40, .batch = 50};
  settings.chat = ChatSettings{.form = form, .user_tokens = 4, .answer_tokens = 6, .min_p = 0.0};
  std::map<std::int64_t, int> lengths[2];
  for (const std::vector<std::uint32_t>& tokens : sampled(model, settings)) {
    REQUIRE(std::equal(form.opening.begin(), form.opening.end(), tokens.begin()));
    bool answers = false;
    std::int64_t length = 0;
    for (std::size_t at = 2; at + 1 < tokens.size();) {
      const std::vector<std::uint32_t>& between = answers ? form.to_user : form.to_answer;
      if (tokens[at] != between[0]) {
        REQUIRE((tokens[at] != 6 && tokens[at] != 7));  // else the turn would have ended
        ++length, ++at;
        continue;
      }
      CHECK(tokens[at + 1] == between[1]);
      ++lengths[answers ? 1 : 0][length];
      answers = !answers, length = 0, at += 2;
    }
  }
  CHECK(lengths[0].rbegin()->first == 4);
  CHECK(lengths[1].rbegin()->first == 6);
  CHECK(lengths[0][4] > 10);   // cut off
  CHECK(lengths[0][1] > 10);   // ended by the model
  settings.chat->min_p = 1.0;  // only the likeliest token: all rows are alike
  const Sequences likeliest = sampled(model, settings);
  CHECK(std::equal(likeliest.begin() + 1, likeliest.end(), likeliest.begin()));
  settings.context = 2;
  CHECK_THAT(refusal_of([&] { sampled(model, settings); }), is_wrong_usage("begins with 2 tokens"));
}

TEST_CASE("a seed determines the text, and batches cover all tokens asked for", "[uptrain]") {
  const TemporaryDirectory directory;
  const Model model = small_model(directory);
  SampleSettings settings{.tokens = 90, .context = 16, .batch = 4, .first_token = 2};
  const Sequences once = sampled(model, settings);
  CHECK(once.size() == 6);
  CHECK(sampled(model, settings) == once);
  settings.seed = 1;
  CHECK(sampled(model, settings) != once);
}

TEST_CASE("what cannot write text is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const Model& model, const SampleSettings& settings) {
    return refusal_of([&] { sampled(model, settings); });
  };
  CHECK_THAT(refusal(load_golden_case("bert").source, {}), is_wrong_usage("text"));
  CHECK_THAT(refusal(load_golden_case("t5").source, {}), is_wrong_usage("text"));
  CHECK_THAT(refusal(small_model(directory), {.first_token = 8}), is_wrong_usage("vocabulary"));
  const std::atomic<bool> stopped = true;
  CHECK(refusal_of([&] {
          sample(small_model(TemporaryDirectory()), {.context = 16, .first_token = 1}, {}, {},
                 stopped);
        }).kind() == ErrorKind::kInterrupted);
}

}  // namespace regroup

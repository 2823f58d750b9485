// Masked tokens and targets, compared with hand-computed values.
#include "uptrain/train/objective.h"

#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/evaluate.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinAbs;

constexpr std::int64_t kMask = 9999;

TokenFile put_tokens(const at::Tensor& tokens, const std::filesystem::path& path) {
  const at::Tensor flat = tokens.flatten().contiguous();
  const auto* ids = flat.const_data_ptr<std::int64_t>();
  put_file(path, bytes_of_numbers(std::vector<std::uint16_t>(ids, ids + flat.numel())));
  return TokenFile::open(path);
}

double cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten()).item<double>();
}

}  // namespace

TEST_CASE("the default evaluation objective follows from the architecture", "[uptrain]") {
  CHECK(objective_of(load_golden_case("llama").source.spec) == Objective::kNextToken);
  CHECK(objective_of(load_golden_case("bert").source.spec) == Objective::kMaskedTokens);
  CHECK(objective_of(load_golden_case("t5").source.spec) == Objective::kContinuation);
  CHECK(predictions_in({.objective = Objective::kNextToken}, 13) == 13);
  CHECK(predictions_in({.objective = Objective::kMaskedTokens}, 13) == 1);
  CHECK(predictions_in({.objective = Objective::kMaskedTokens}, 100) == 15);
  CHECK(predictions_in({.objective = Objective::kContinuation}, 13) == 7);
}

TEST_CASE("15 % of tokens are selected and of these 80 % masked and 10 % replaced", "[uptrain]") {
  // Even tokens only, so that about half of the random replacements are recognised as odd.
  const at::Tensor ids = (at::arange(200 * 100, at::kLong) * 2 % 5000).view({200, 100});
  const TaskBatch masked = mask_tokens(ids, 0, {.token = kMask, .seed = 1}, 5000);
  REQUIRE(masked.positions.numel() == 200 * 15);
  const auto* position = masked.positions.const_data_ptr<std::int64_t>();
  CHECK(std::set<std::int64_t>(position, position + 3000).size() == 3000);
  CHECK(masked.targets.equal(ids.flatten().index_select(0, masked.positions)));
  const at::Tensor shown = masked.tokens.flatten().index_select(0, masked.positions);
  const auto share = [&](const at::Tensor& which) {
    return static_cast<double>(which.sum().item<std::int64_t>()) / 3000;
  };
  CHECK_THAT(share(shown.eq(kMask)), WithinAbs(0.8, 0.03));
  CHECK_THAT(share(shown.eq(masked.targets)), WithinAbs(0.1, 0.03));
  CHECK_THAT(share(shown.remainder(2).eq(1).logical_and(shown.ne(kMask))), WithinAbs(0.05, 0.02));
  CHECK(masked.tokens.ne(ids).sum().item<std::int64_t>() <= 3000);  // no other tokens change
}

TEST_CASE("masked tokens depend on seed and window but not on the batch", "[uptrain]") {
  const at::Tensor ids = at::arange(6 * 40, at::kLong).view({6, 40});
  const TaskBatch all = mask_tokens(ids, 0, {.token = kMask, .seed = 1}, 300);
  const TaskBatch last = mask_tokens(ids.narrow(0, 4, 2), 4, {.token = kMask, .seed = 1}, 300);
  CHECK(last.tokens.equal(all.tokens.narrow(0, 4, 2)));
  CHECK(last.targets.equal(all.targets.narrow(0, 4 * 6, 2 * 6)));
  CHECK_FALSE(mask_tokens(ids, 0, {.token = kMask, .seed = 2}, 300).targets.equal(all.targets));
  const at::Tensor same = at::full({2, 40}, 7, at::kLong);
  const TaskBatch two = mask_tokens(same, 0, {.token = kMask, .seed = 1}, 300);
  CHECK_FALSE(two.tokens.select(0, 0).equal(two.tokens.select(0, 1)));
}

TEST_CASE("the encoder reads the first half and the decoder the second after its start token",
          "[uptrain]") {
  const TextPair halves = split_halves(at::arange(5, at::kLong).view({1, 5}) + 10, 3);
  CHECK(halves.source.equal(at::tensor({10, 11}, at::kLong).view({1, 2})));
  CHECK(halves.target.equal(at::tensor({3, 12, 13}, at::kLong).view({1, 3})));
  CHECK(halves.answers.equal(at::tensor({12, 13, 14}, at::kLong).view({1, 3})));
}

TEST_CASE("an encoder-decoder's loss is the loss of the second halves", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("t5_v1_1");
  const TokenFile file = put_tokens(golden.tokens, directory / "tokens");
  const Transformer model = load_transformer(golden.source, at::kFloat, at::kCPU);
  const Evaluation evaluation =
      evaluate(model, file, {.context = 13, .batch = 1, .max_tokens = {}}, {}, kNeverStopped);
  CHECK(evaluation.tokens == 2 * 7);
  CHECK_THAT(evaluation.loss,
             WithinAbs(cross_entropy(golden.logits, golden.tokens.narrow(1, 6, 7)), 1e-5));
  CHECK(evaluate(model, file, {.context = 13, .batch = 2, .max_tokens = 7}, {}, kNeverStopped)
            .tokens == 7);
  CHECK_THAT(refusal_of([&] {
               evaluate(model, file, {.context = 1, .batch = 1, .max_tokens = {}}, {},
                        kNeverStopped);
             }),
             is_wrong_usage("context is 1", "2 tokens"));
}

TEST_CASE("an encoder's loss is the loss of the masked tokens", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("bert");
  const TokenFile file = put_tokens(golden.tokens, directory / "tokens");
  const Transformer model = load_transformer(golden.source, at::kFloat, at::kCPU);
  const TaskBatch masked = mask_tokens(golden.tokens, 0, {.token = 3, .seed = 8}, 40);
  const at::Tensor logits = window_logits(model, masked.tokens).flatten(0, 1);
  const double loss = cross_entropy(logits.index_select(0, masked.positions), masked.targets);
  for (const std::int64_t batch : {1, 2}) {
    const Evaluation evaluation = evaluate(
        model, file,
        {.context = 13, .batch = batch, .max_tokens = {}, .task = {.mask_token = 3, .seed = 8}}, {},
        kNeverStopped);
    CHECK(evaluation.tokens == 2);
    CHECK_THAT(evaluation.loss, WithinAbs(loss, 1e-5));
  }
}

TEST_CASE("the mask token must be given and in the vocabulary", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("bert");
  const TokenFile file = put_tokens(golden.tokens, directory / "tokens");
  ModelSpec spec = golden.source.spec;
  const auto windows = [&](std::optional<std::int64_t> mask_token) {
    return evaluation_windows(
        file, {.context = 13, .batch = 1, .max_tokens = {}, .task = {.mask_token = mask_token}},
        spec);
  };
  CHECK_THAT(refusal_of([&] { windows({}); }), is_wrong_usage("--mask-token"));
  CHECK_THAT(refusal_of([&] { windows(40); }), is_wrong_usage("mask token 40", "40 tokens"));
  CHECK_THAT(refusal_of([&] { windows(-1); }), is_wrong_usage("mask token -1"));
  CHECK(windows(39) == 2);
  spec.mask_token = 4;
  CHECK(windows({}) == 2);
  // Writing logits masks no tokens.
  CHECK(logits_windows(file, {.context = 13, .batch = 1, .max_tokens = {}}, golden.source.spec) ==
        2);
}

TEST_CASE("passing the wrong number of sequences is refused", "[uptrain]") {
  const GoldenCase two = load_golden_case("t5"), one = load_golden_case("bert");
  const Transformer both = load_transformer(two.source, at::kFloat, at::kCPU);
  const Transformer encoder = load_transformer(one.source, at::kFloat, at::kCPU);
  CHECK_THAT(refusal_of([&] { both.hidden_states(two.tokens); }), is_wrong_usage("two sequences"));
  CHECK_THAT(refusal_of([&] { encoder.hidden_states(one.tokens, one.tokens); }),
             is_wrong_usage("only encoder-decoder"));
}

TEST_CASE("the default training objective is that of pretraining", "[uptrain]") {
  CHECK(training_objective_of(load_golden_case("llama").source.spec) == Objective::kNextToken);
  CHECK(training_objective_of(load_golden_case("bert").source.spec) == Objective::kMaskedTokens);
  CHECK(training_objective_of(load_golden_case("t5").source.spec) == Objective::kSpanCorruption);
  for (const char* name : {"bart", "mbart"}) {
    CHECK(training_objective_of(load_golden_case(name).source.spec) == Objective::kTextInfilling);
  }
}

TEST_CASE("models trained on pairs of texts have no default training objective", "[uptrain]") {
  for (const char* name : {"marian", "m2m_100", "pegasus"}) {
    CAPTURE(name);
    const ModelSpec spec = load_golden_case(name).source.spec;
    CHECK_THAT(refusal_of([&] { make_training_task({}, spec, 8); }),
               is_wrong_usage("not trained on plain text", "--objective continuation"));
    CHECK(make_training_task({.objective = Objective::kContinuation}, spec, 8).objective ==
          Objective::kContinuation);
    CHECK(objective_of(spec) == Objective::kContinuation);
  }
}

TEST_CASE("text infilling needs a mask token and room for the end token", "[uptrain]") {
  const ModelSpec spec = load_golden_case("bart").source.spec;  // 16 positions
  const auto task = [&](const TaskSettings& settings, std::int64_t context) {
    return make_training_task(settings, spec, context);
  };
  CHECK_THAT(refusal_of([&] { task({}, 8); }), is_wrong_usage("--mask-token", "<mask>"));
  CHECK_THAT(refusal_of([&] { task({.mask_token = 40}, 8); }),
             is_wrong_usage("mask token 40", "40 tokens"));
  CHECK_THAT(refusal_of([&] { task({.mask_token = 3, .end_token = 40}, 8); }),
             is_wrong_usage("end token 40"));
  CHECK(task({.mask_token = 3}, 16).hiding.token == 3);
  CHECK(predictions_in(task({.mask_token = 3, .end_token = 2}, 15), 15) == 16);
  CHECK_THAT(refusal_of([&] { task({.mask_token = 3, .end_token = 2}, 16); }),
             is_wrong_usage("context is 16", "17 tokens", "learned positions for 16"));
}

TEST_CASE("objectives that a model does not support are refused", "[uptrain]") {
  const ModelSpec decoder = load_golden_case("llama").source.spec;
  const ModelSpec encoder = load_golden_case("bert").source.spec;
  const ModelSpec both = load_golden_case("t5").source.spec;
  const auto task = [](const ModelSpec& spec, const TaskSettings& settings, std::int64_t context) {
    return make_task(settings, spec, objective_of(spec), context).objective;
  };
  const auto asked = [](Objective objective) { return TaskSettings{.objective = objective}; };
  CHECK(task(decoder, {}, 8) == Objective::kNextToken);
  CHECK_THAT(refusal_of([&] { task(decoder, asked(Objective::kMaskedTokens), 8); }),
             is_wrong_usage("masked-tokens", "LlamaForCausalLM", "next-token only"));
  CHECK_THAT(refusal_of([&] { task(encoder, asked(Objective::kSpanCorruption), 8); }),
             is_wrong_usage("span-corruption", "masked-tokens only"));
  CHECK_THAT(refusal_of([&] { task(both, asked(Objective::kNextToken), 8); }),
             is_wrong_usage("next-token", "continuation, span-corruption and text-infilling"));
  TaskSettings spans = asked(Objective::kSpanCorruption);
  CHECK_THAT(refusal_of([&] { task(both, spans, 8); }), is_wrong_usage("--first-sentinel"));
  spans.sentinels = Sentinels{40, 100};
  CHECK_THAT(refusal_of([&] { task(both, spans, 8); }),
             is_wrong_usage("first sentinel 40", "40 tokens"));
  spans.sentinels = Sentinels{39, 2};
  CHECK(task(both, spans, 40) == Objective::kSpanCorruption);  // 6 hidden tokens in 2 spans
  CHECK_THAT(refusal_of([&] { task(both, spans, 60); }),
             is_wrong_usage("60 tokens", "3 hidden spans", "allowed are 2"));
  spans.end_token = -1;
  CHECK_THAT(refusal_of([&] { task(both, spans, 40); }), is_wrong_usage("end token -1"));
}

TEST_CASE("names of objectives are parsed with hyphens or underscores", "[uptrain]") {
  CHECK(parse_objective("span-corruption") == Objective::kSpanCorruption);
  CHECK(parse_objective("next_token") == Objective::kNextToken);
  CHECK_THAT(refusal_of([] { parse_objective("words"); }), is_wrong_usage("words"));
}

TEST_CASE("the targets of span corruption are the decoder's output", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const GoldenCase golden = load_golden_case("t5_v1_1");
  const Transformer model = load_transformer(golden.source, at::kFloat, at::kCPU);
  const Task task{.objective = Objective::kSpanCorruption, .hiding = {.token = 39, .end_token = 1}};
  const Predictions predictions = predict(model, golden.tokens, 5, task);
  const TextPair text = corrupt_spans(golden.tokens, 5, task.hiding, 0);
  CHECK(predictions.targets.equal(text.answers.flatten()));
  CHECK(predictions.hidden.equal(
      model.hidden_states(text.source, text.target).flatten(0, 1).unsqueeze(0)));
  CHECK(predictions.targets.numel() == 2 * predictions_in(task, 13));
}

TEST_CASE("the targets of text infilling are the whole text and the end token", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const GoldenCase golden = load_golden_case("bart");
  const Transformer model = load_transformer(golden.source, at::kFloat, at::kCPU);
  const Task task{.objective = Objective::kTextInfilling, .hiding = {.token = 39, .end_token = 2}};
  const Predictions predictions = predict(model, golden.tokens, 5, task);
  const TextPair text = infill_text(golden.tokens, 5, task.hiding, 2);
  CHECK(predictions.targets.equal(text.answers.flatten()));
  CHECK(predictions.hidden.equal(
      model.hidden_states(text.source, text.target).flatten(0, 1).unsqueeze(0)));
  CHECK(predictions.targets.numel() == 2 * predictions_in(task, 13));
}

}  // namespace regroup

#include "uptrain/train/evaluate.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinAbs;

Transformer model_of(const GoldenCase& golden) {
  return load_transformer(golden.source, at::kFloat, at::kCPU);
}

// The fixture's sequences in one token file.
}  // namespace

TEST_CASE("written logits of consecutive windows equal those of transformers", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto* name = GENERATE("llama", "gpt2", "bloom");
  const std::int64_t batch = GENERATE(1, 8);
  const GoldenCase golden = load_golden_case(name);
  const TokenFile file = put_tokens_of(golden, directory / "tokens");
  const EvaluationSettings settings{
      .context = golden.tokens.size(1), .batch = batch, .max_tokens = {}};
  write_logits(model_of(golden), file, settings, directory / "logits.safetensors", {},
               kNeverStopped);
  const at::Tensor logits = read_tensor(directory / "logits.safetensors", "logits");
  REQUIRE(logits.sizes() == golden.logits.sizes());
  CHECK(largest_difference(logits, golden.logits) <= 1e-4);
  CHECK_THAT(refusal_of([&] {
               write_logits(model_of(golden), file, settings, directory / "logits.safetensors", {},
                            kNeverStopped);
             }),
             is_wrong_usage("logits.safetensors", "exists already"));
}

TEST_CASE("evaluation is the mean loss over whole windows for any batch", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama");
  const Transformer model = model_of(golden);
  const TokenFile file = put_tokens_of(golden, directory / "tokens");  // 26 tokens
  const at::NoGradGuard no_gradients;
  double sum = 0.0;
  for (const std::int64_t begin :
       {0, 8, 16}) {  // three windows of 8 predictions, with one token left over
    const at::Tensor ids = golden.tokens.flatten().narrow(0, begin, 9).view({1, 9});
    const at::Tensor logits = model.logits(model.hidden_states(ids.narrow(1, 0, 8)));
    sum +=
        8 * at::cross_entropy_loss(logits.squeeze(0), ids.narrow(1, 1, 8).flatten()).item<double>();
  }
  for (const std::int64_t batch : {1, 2, 8}) {
    const Evaluation evaluation =
        evaluate(model, file, {.context = 8, .batch = batch, .max_tokens = {}}, {}, kNeverStopped);
    CHECK(evaluation.tokens == 24);
    CHECK_THAT(evaluation.loss, WithinAbs(sum / 24, 1e-5));
    CHECK_THAT(evaluation.perplexity, WithinAbs(std::exp(evaluation.loss), 1e-9));
  }
  CHECK(evaluate(model, file, {.context = 8, .batch = 2, .max_tokens = 9}, {}, kNeverStopped)
            .tokens == 16);
}

TEST_CASE("invalid evaluations are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("gpt2");
  const Transformer model = model_of(golden);
  const TokenFile file = put_tokens_of(golden, directory / "tokens");  // 26 tokens
  CHECK_THAT(refusal_of([&] {
               evaluate(model, file, {.context = 26, .batch = 1, .max_tokens = {}}, {},
                        kNeverStopped);
             }),
             is_bad_input("tokens", "26 tokens", "needs 27"));
  CHECK_THAT(refusal_of([&] {
               evaluate(model, file, {.context = 17, .batch = 1, .max_tokens = {}}, {},
                        kNeverStopped);
             }),
             is_wrong_usage("17", "16"));
  CHECK_THAT(refusal_of([&] {
               evaluate(model, file, {.context = 0, .batch = 1, .max_tokens = {}}, {},
                        kNeverStopped);
             }),
             is_wrong_usage("context"));
  put_file(directory / "other", bytes_of_numbers(std::vector<std::uint16_t>(30, 64)));
  CHECK_THAT(refusal_of([&] {
               evaluate(model, TokenFile::open(directory / "other"),
                        {.context = 8, .batch = 1, .max_tokens = {}}, {}, kNeverStopped);
             }),
             is_bad_input("other", "token 0 is 64"));
}

TEST_CASE("a stopped evaluation leaves no file", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("gpt2");
  const TokenFile file = put_tokens_of(golden, directory / "tokens");
  const std::atomic<bool> stop{true};
  const Error error = refusal_of([&] {
    write_logits(model_of(golden), file, {.context = 8, .batch = 1, .max_tokens = {}},
                 directory / "logits.safetensors", {}, stop);
  });
  CHECK(error.kind() == ErrorKind::kInterrupted);
  CHECK(tree_of(directory.path()).size() == 1);
}

TEST_CASE("an evaluation stops in the middle of a pass", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama");
  const TokenFile file = put_tokens_of(golden, directory / "tokens");
  Transformer model = model_of(golden);
  REQUIRE(golden.source.spec.layers.size() > 1);
  std::atomic<bool> stop{false};
  int attentions = 0;
  model.set_attention_observer([&](auto, const auto&, const auto&) {
    ++attentions;
    stop = true;
  });
  const Error error = refusal_of(
      [&] { evaluate(model, file, {.context = 25, .batch = 1, .max_tokens = {}}, {}, stop); });
  CHECK(error.kind() == ErrorKind::kInterrupted);
  CHECK(attentions == 1);
}

TEST_CASE("fewer tokens than a window has are all that is read", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama");
  const TokenFile file = put_tokens_of(golden, directory / "tokens");  // 26 tokens
  const Transformer model = model_of(golden);
  const at::NoGradGuard no_gradients;
  const at::Tensor ids = golden.tokens.flatten();
  const at::Tensor logits = model.logits(model.hidden_states(ids.narrow(0, 0, 3).view({1, 3})));
  const double loss = at::cross_entropy_loss(logits.squeeze(0), ids.narrow(0, 1, 3)).item<double>();
  for (const std::int64_t context : {8, 100'000}) {
    std::int64_t longest = 0;
    Transformer watched = model;
    watched.set_attention_observer(
        [&](auto, const at::Tensor& input, const auto&) { longest = input.size(1); });
    const Evaluation evaluation = evaluate(
        watched, file, {.context = context, .batch = 1, .max_tokens = 3}, {}, kNeverStopped);
    CHECK(evaluation.tokens == 3);
    CHECK(longest == 3);
    CHECK_THAT(evaluation.loss, WithinAbs(loss, 1e-5));
  }
}

}  // namespace regroup

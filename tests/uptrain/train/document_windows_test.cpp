// Separate documents: their windows, predicted tokens, and how runs count them.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/vocabulary/token_writer.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/evaluate.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinAbs;
using Ids = std::vector<std::int64_t>;

const DocumentSettings kSeparate{.separate = true};

// Megatron's two files with documents of the given lengths. The tokens count up from 0.
std::filesystem::path put_documents(const std::filesystem::path& path,
                                    const std::vector<std::int64_t>& lengths) {
  TokenWriter writer(path, TokenLayout::kMegatron, 65536);
  std::uint32_t next = 0;
  for (const std::int64_t length : lengths) {
    std::vector<std::uint32_t> ids(length);
    std::iota(ids.begin(), ids.end(), next);
    next += static_cast<std::uint32_t>(length);
    writer.write(ids);
    writer.end_document();
  }
  writer.publish();
  return path;
}

Ids ids_of(const at::Tensor& row) {
  const at::Tensor flat = row.contiguous();
  const auto* ids = flat.const_data_ptr<std::int64_t>();
  return {ids, ids + flat.numel()};
}

}  // namespace

TEST_CASE("windows begin and end with their documents", "[uptrain]") {
  const TemporaryDirectory directory;
  const TokenFile file = TokenFile::open(put_documents(directory / "a.bin", {5, 1, 3, 10}));
  const DocumentWindows windows(file, 4, {});
  REQUIRE(windows.size() == 5);  // 1, 0, 1 and 3 windows
  CHECK(windows.predictions() == 4 + 2 + 9);
  const std::vector<Ids> expected{{0, 1, 2, 3, 4},
                                  {6, 7, 8, -1, -1},
                                  {9, 10, 11, 12, 13},
                                  {13, 14, 15, 16, 17},
                                  {17, 18, -1, -1, -1}};
  for (std::int64_t i = 0; i < 5; ++i) {
    Ids ids(5);
    windows.read(file, i, ids);
    CHECK(ids == expected[i]);
    CHECK(windows.predictions(i) == 4 - std::count(ids.begin(), ids.end(), kNoToken));
  }
}

TEST_CASE("separate documents: an epoch has each window once in an order given by the seed",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const std::vector<std::filesystem::path> files{
      put_documents(directory / "a.bin", {5, 1, 3, 10}),  // 5 windows
      put_documents(directory / "b.bin", {2, 2})};        // 2 windows
  const DataLoader data(files, 4, 65536, 3, {}, kSeparate);
  REQUIRE(data.windows() == 7);
  CHECK_THAT(data.filled(), WithinAbs(17.0 / 28.0, 1e-12));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<Ids, int> seen;
    std::int64_t asked = 0;
    for (std::int64_t i = epoch * 7; i < epoch * 7 + 7; ++i) {
      const Ids ids = ids_of(data.batch(i, 1));
      ++seen[ids];
      const auto empty = std::count(ids.begin(), ids.end(), kNoToken);
      CHECK(data.predictions(i, 1) == 4 - empty);
      asked += 4 - empty;
    }
    CHECK(seen.size() == 7);
    CHECK(seen.contains({6, 7, 8, -1, -1}));
    CHECK(asked == 17);
    CHECK(data.predictions(epoch * 7, 7) == 17);
  }
  CHECK_FALSE(data.batch(0, 7).equal(data.batch(7, 7)));
  CHECK_FALSE(data.batch(0, 7).equal(DataLoader(files, 4, 65536, 4, {}, kSeparate).batch(0, 7)));
  const DataLoader packed({files.front()}, 4, 65536, 3);
  CHECK(packed.filled() == 1.0);
  CHECK(packed.predictions(1, 5) == 20);
}

TEST_CASE("separate documents: weights mix files", "[uptrain]") {
  const TemporaryDirectory directory;
  const DataLoader data(
      {put_documents(directory / "a.bin", {5, 5, 5, 5}), put_documents(directory / "b.bin", {3})},
      4, 65536, 3, {0.5, 0.5}, kSeparate);
  CHECK(data.filled() == 0.75);
  const std::int64_t all = DataLoader::kMixedSamples;
  CHECK(data.predictions(0, all) == all / 2 * 4 + all / 2 * 2);
}

TEST_CASE("a document's loss does not depend on the documents around it", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama");
  const Transformer model = load_transformer(golden.source, at::kFloat, at::kCPU);
  const at::Tensor text = golden.tokens.flatten();
  const std::vector<std::int64_t> lengths{7, 1, 3, 10};
  TokenWriter writer(directory / "text.bin", TokenLayout::kMegatron, 65536);
  const at::NoGradGuard no_gradients;
  double sum = 0.0;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    const at::Tensor document = text.narrow(0, begin, length).unsqueeze(0);
    begin += length;
    const Ids ids = ids_of(document);
    writer.write(std::vector<std::uint32_t>(ids.begin(), ids.end()));
    writer.end_document();
    if (length > 1) {  // alone, with a context of its own length
      const at::Tensor logits =
          model.logits(model.hidden_states(document.narrow(1, 0, length - 1)));
      sum += static_cast<double>(length - 1) *
             at::cross_entropy_loss(logits.squeeze(0), document.narrow(1, 1, length - 1).flatten())
                 .item<double>();
    }
  }
  writer.publish();
  const TokenFile file = TokenFile::open(directory / "text.bin");
  const std::atomic<bool> go_on{false};
  const auto loss_of = [&](const EvaluationSettings& settings) {
    return evaluate(model, file, settings, {}, go_on);
  };
  for (const std::int64_t batch : {1, 2, 3}) {
    const Evaluation apart =
        loss_of({.context = 12, .batch = batch, .max_tokens = {}, .documents = kSeparate});
    CHECK(apart.tokens == 6 + 2 + 9);
    CHECK_THAT(apart.loss, WithinAbs(sum / 17, 1e-5));
  }
  CHECK(loss_of({.context = 12, .batch = 2, .max_tokens = 7, .documents = kSeparate}).tokens == 8);
  // Packed documents attend to each other.
  CHECK(std::abs(loss_of({.context = 20, .batch = 1, .max_tokens = {}}).loss - sum / 17) > 1e-3);
}

TEST_CASE("separate documents: every token has the same weight however a step is divided",
          "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 3);
  settings.documents = {.separate = true, .mark = DocumentMark{.token = 5, .ends = true}};
  settings.batch = 6;
  settings.accumulation = 1;
  const double whole = run_to_end(settings).last_loss;
  settings.batch = 2;
  settings.accumulation = 3;
  settings.output = directory / "parts";
  CHECK_THAT(run_to_end(settings).last_loss, WithinAbs(whole, 1e-5));
  const DataLoader data(settings.data, 12, 64, 7, {}, settings.documents);
  // Numbers of predictions per micro-batch: averaging their means would be wrong.
  std::set<std::int64_t> asked;
  for (std::int64_t first = 0; first < 18; first += 2) {
    asked.insert(data.predictions(first, 2));
  }
  CHECK(asked.size() > 1);
}

TEST_CASE("separate documents: a run resumes exactly and only with the same documents",
          "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.documents = {.separate = true, .mark = DocumentMark{.token = 5, .ends = false}};
  settings.eval_data = settings.data.front();
  run_to_end(settings);
  settings.output = directory / "stopped";
  run_until(settings, 2);
  UptrainSettings others = settings;
  others.documents.mark->token = 6;
  CHECK_THAT(refusal_of([&] { run_to_end(others, true); }),
             is_wrong_usage("document_start was 5, now 6"));
  run_to_end(settings, true);
  CHECK(tree_of(directory / "stopped") == tree_of(directory / "out"));
}

TEST_CASE("documents that cannot be separated are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 1);
  settings.documents = kSeparate;
  CHECK_THAT(refusal_of([&] { run_to_end(settings); }),
             is_wrong_usage("training.bin", "documents are unknown"));
  settings = short_run(directory.path(), "t5", 1);
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 36)));
  settings.task.sentinels = Sentinels{39, 3};
  settings.documents = {.separate = true, .mark = DocumentMark{.token = 5}};
  CHECK_THAT(refusal_of([&] { run_to_end(settings); }),
             is_wrong_usage("next-token", "span-corruption"));
  put_documents(directory / "short.bin", {1, 1, 1});
  CHECK_THAT(refusal_of([&] { DocumentWindows(TokenFile::open(directory / "short.bin"), 4, {}); }),
             is_bad_input("short.bin", "two tokens"));
}

}  // namespace regroup

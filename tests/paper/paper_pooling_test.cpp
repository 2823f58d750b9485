// Heads solved for on the paper device: the CPU's numbers, how often the host waits, and a result
// that can be verified.
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <fmt/format.h>

#include "converter/convert/verify_conversion.h"
#include "converter/pooling/pool_attention.h"
#include "tests/converter/conversion.h"
#include "tests/converter/pooling/small_attention.h"
#include "tests/file_tree.h"
#include "tests/paper/paper_device.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/calibrate.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::array kMethods{PoolMethod::kMean, PoolMethod::kFirst, PoolMethod::kLowrank};

// Without RoPE, with it and with features that do not rotate. Six heads of 4 features.
std::vector<HeadBasis> bases() {
  return {free_basis(4), {{{0, 2}, {1, 3}}, {}, {1.0, 0.1}}, {{{0, 1}}, {2, 3}, {0.5}}};
}

PoolingTask task_of(PoolMethod method, std::int64_t groups, const HeadBasis& basis,
                    RandomNumbers& random) {
  const InputMoments moments = random_moments(30, random);
  PoolingTask task{method, groups, basis, moments, moments};
  if (basis.rotates()) {
    constexpr std::int64_t kLength = 5;
    task.distances = {kLength, std::vector<double>(6 * kLength, 1.0 / kLength)};
  }
  return task;
}

PooledAttention on_paper(const AttentionHeads& heads, PoolingTask task) {
  task.device = paper_device().str();
  return pool_attention(heads, task);
}

double largest(const std::vector<double>& one, const std::vector<double>& other) {
  REQUIRE(one.size() == other.size());
  double most = 0.0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    most = std::max(most, std::abs(one[i] - other[i]));
  }
  return most;
}

// Converts to half the kv heads by lowrank on `device`, with those statistics.
void convert_on(const Model& source, at::Device device, const fs::path& statistics,
                const fs::path& output) {
  ConversionRequest half;
  half.kv_heads = {source.spec.kv_heads.front() / 2};
  half.pooling.method = PoolMethod::kLowrank;
  half.pooling.device = device.str();
  half.calibration = open_calibration(statistics.string(), source);
  execute_conversion(
      plan_conversion(source, half), source, output, [](auto, auto) {}, kNeverStopped);
}

}  // namespace

TEST_CASE("every method solved on paper gives the CPU's heads", "[paper]") {
  const PoolMethod method = GENERATE(from_range(kMethods));
  const HeadBasis basis = GENERATE(from_range(bases()));
  const std::int64_t groups = GENERATE(1, 3);
  const bool biases = GENERATE(false, true);
  CAPTURE(name_of(method), basis.rope_planes.size(), groups, biases);
  RandomNumbers random(7);
  const AttentionHeads heads = random_heads({.biases = biases}, random);
  const PoolingTask task = task_of(method, groups, basis, random);
  const PooledAttention here = pool_attention(heads, task), there = on_paper(heads, task);
  const std::pair<const DenseLinear&, const DenseLinear&> linears[] = {
      {here.heads.q, there.heads.q},
      {here.heads.k, there.heads.k},
      {here.heads.v, there.heads.v},
      {here.heads.o, there.heads.o}};
  for (const auto& [one, other] : linears) {
    CHECK(largest(one.weight, other.weight) < 1e-9);
    CHECK(largest(one.bias, other.bias) < 1e-9);
  }
  for (std::size_t i = 0; i < here.groups.size(); ++i) {
    CHECK(std::abs(here.groups[i].loss - there.groups[i].loss) < 1e-12);
    CHECK(std::abs(here.groups[i].key_norm - there.groups[i].key_norm) < 1e-12);
  }
}

TEST_CASE("similar heads on paper are the CPU's", "[paper]") {
  const HeadBasis basis = GENERATE(from_range(bases()));
  RandomNumbers random(8);
  const AttentionHeads heads = random_heads({}, random);
  PoolingTask task = task_of(PoolMethod::kLowrank, 3, basis, random);
  const SimilarHeads here = find_similar_heads(heads, task);
  task.device = paper_device().str();
  const SimilarHeads there = find_similar_heads(heads, task);
  CHECK(there.partition == here.partition);
  CHECK(std::abs(there.loss - here.loss) < 1e-12);
}

TEST_CASE("a layer is uploaded once, and waits grow with groups, not with heads", "[paper]") {
  const std::int64_t groups = GENERATE(1, 3);
  RandomNumbers random(9);
  const AttentionHeads heads = random_heads({}, random);
  const PoolingTask task = task_of(PoolMethod::kLowrank, groups, bases()[1], random);
  reset_paper_counts();
  on_paper(heads, task);
  const PaperCounts counts = paper_counts();
  CAPTURE(counts.waiting);
  // Four projections, moments of both inputs, distances, and indices and factors of RoPE's planes.
  CHECK(counts.uploads <= 24);
  // Back come four projections, and for each group its energies and an error for each sweep.
  CHECK(counts.downloads <= 4 + 4 * groups);
  // A group decomposes four times and then alternates in sweeps, with a few waits each.
  const std::int64_t solved = counts.operators.at("aten::_linalg_solve_ex");
  CHECK(counts.operators.at("aten::_linalg_eigh") == 3 * groups);
  CHECK(counts.waits <= counts.uploads + counts.downloads + 3 * groups + 2 * solved + 8 * groups);
}

TEST_CASE("a model calibrated and solved on paper is the CPU's, and can be verified", "[paper]") {
  const auto* name = GENERATE("llama_mha", "bloom", "gpt2");
  CAPTURE(name);
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case(name);
  put_file(directory / "tokens",
           bytes_of_numbers(
               learnable_text(512, static_cast<std::uint16_t>(golden.source.spec.vocab_size))));
  const TokenFile data = TokenFile::open(directory / "tokens");
  for (const at::Device device : {at::Device(c10::kCPU), paper_device()}) {
    const std::string where = device.is_cpu() ? "here" : "there";
    const fs::path statistics = directory / (where + ".safetensors");
    calibrate(
        golden.source, data, {.context = 16, .batch = 4, .max_tokens = 512}, device, statistics,
        [](std::int64_t, std::int64_t) {}, kNeverStopped);
    convert_on(golden.source, device, statistics, directory / where);
  }
  const Model here = open_model(directory / "here"), there = open_model(directory / "there");
  const at::Tensor logits =
      window_logits(load_transformer(here, at::kFloat, c10::kCPU), golden.tokens);
  CHECK(largest_difference(
            window_logits(load_transformer(there, at::kFloat, c10::kCPU), golden.tokens), logits) <
        1e-3 * logits.abs().max().item<double>());

  // Solved elsewhere, tensors are verified by their checksums, and on the CPU by solving again.
  const auto verified = [&](const Model& result, const char* statistics) {
    const ConversionPlan plan = plan_conversion(
        golden.source,
        recorded_request(golden.source, result,
                         open_calibration((directory / statistics).string(), golden.source)));
    return verify_conversion(plan, golden.source, result, [](auto, auto) {});
  };
  const Verification solved_here = verified(here, "here.safetensors");
  CHECK(solved_here.passed());
  CHECK(solved_here.trained.empty());
  const Verification solved_there = verified(there, "there.safetensors");
  CHECK(solved_there.passed());
  CHECK(solved_there.trained.size() == solved_here.computed - solved_there.computed);
  CHECK_FALSE(solved_there.trained.empty());
}

// test_paper "[solving]" prints the counts that docs/gpu.md uses: 32 heads become 8, as in
// Llama-2-7B.
TEST_CASE("prints launches of solving a layer", "[.][solving]") {
  RandomNumbers random(10);
  const AttentionHeads heads =
      random_heads({.query_heads = 32, .kv_heads = 32, .head_dim = 16, .width = 512}, random);
  const InputMoments moments = random_moments(512, random);
  HeadBasis basis;
  for (std::int64_t i = 0; i < 8; ++i) {
    basis.rope_planes.emplace_back(i, i + 8);
    basis.frequencies.push_back(std::pow(10'000.0, -static_cast<double>(i) / 8));
  }
  PoolingTask task{PoolMethod::kLowrank, 8, basis, moments, moments};
  task.distances = {512, std::vector<double>(32 * 512, 1.0 / 512)};
  reset_paper_counts();
  on_paper(heads, task);
  const PaperCounts counts = paper_counts();
  fmt::print("{} launches, {} waits, {} uploads, {} downloads, {} solved equations\n",
             counts.launches, counts.waits, counts.uploads, counts.downloads,
             counts.operators.at("aten::_linalg_solve_ex"));
}

}  // namespace regroup

// The similarity of heads, compared with known values.
#include "converter/pooling/solvers/head_similarity.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include "tests/child_program.h"
#include "tests/converter/pooling/pooled_conversion.h"
#include "tests/converter/pooling/small_attention.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

double at(const std::vector<double>& matrix, std::int64_t i, std::int64_t j) {
  return matrix[static_cast<std::size_t>(i * 6 + j)];
}

// Rotates head `head` of a linear map.
void turn(DenseLinear& linear, std::int64_t head, const at::Tensor& rotation) {
  const at::Tensor weight = weight_of(linear, 4).select(0, head);
  weight.copy_(at::matmul(rotation, weight));
}

HeadSimilarity similarity(const AttentionHeads& heads, const HeadBasis& basis,
                          const InputMoments& moments) {
  return similarity_of_heads(heads, {PoolMethod::kLowrank, 3, basis, moments, moments});
}

TEST_CASE("rotated copies are similar after alignment only", "[converter]") {
  RandomNumbers random(1);
  AttentionHeads heads = random_heads({}, random);
  const InputMoments moments = random_moments(30, random);
  for (DenseLinear* linear : {&heads.k, &heads.v}) {
    const at::Tensor weight = weight_of(*linear, 4);
    weight.select(0, 1).copy_(-3.0 * weight.select(0, 0));
    weight.select(0, 3).copy_(weight.select(0, 2));
    turn(*linear, 3, std::get<0>(at::linalg_qr(random({4, 4}))));
  }
  const HeadSimilarity found = similarity(heads, free_basis(4), moments);
  for (const SimilarityMatrix& matrix : {found.keys, found.values}) {
    CHECK(std::abs(at(matrix.raw, 0, 1) + 1.0) < 1e-9);  // opposite
    CHECK(std::abs(at(matrix.aligned, 0, 1) - 1.0) < 1e-9);
    CHECK(at(matrix.raw, 2, 3) < 0.95);
    CHECK(std::abs(at(matrix.aligned, 2, 3) - 1.0) < 1e-6);
    CHECK(at(matrix.aligned, 0, 2) < 0.99);
    for (std::int64_t i = 0; i < 6; ++i) {
      CHECK(at(matrix.raw, i, i) == 1.0);
      for (std::int64_t j = 0; j < 6; ++j) {
        CHECK(std::abs(at(matrix.raw, i, j) - at(matrix.raw, j, i)) < 1e-12);
        CHECK(at(matrix.aligned, i, j) >= std::abs(at(matrix.raw, i, j)) - 1e-9);
      }
    }
  }
}

TEST_CASE("keys are aligned within RoPE's planes only", "[converter]") {
  RandomNumbers random(2);
  AttentionHeads heads = random_heads({}, random);
  const InputMoments moments = random_moments(30, random);
  const at::Tensor weight = weight_of(heads.k, 4);
  weight.select(0, 1).copy_(weight.select(0, 0));
  weight.select(0, 2).copy_(weight.select(0, 0));
  const double c = std::cos(0.7), s = std::sin(0.7);
  // Rotations within the planes (0, 2) and (1, 3), and across them.
  const at::Tensor within =
      at::tensor({c, 0.0, -s, 0.0, 0.0, 1.0, 0.0, 0.0, s, 0.0, c, 0.0, 0.0, 0.0, 0.0, 1.0})
          .to(at::kDouble)
          .view({4, 4});
  const at::Tensor across =
      at::tensor({0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0})
          .to(at::kDouble)
          .view({4, 4});
  turn(heads.k, 1, within);
  turn(heads.k, 2, across);
  const HeadSimilarity rope = similarity(heads, {{{0, 2}, {1, 3}}, {}}, moments);
  CHECK(std::abs(at(rope.keys.aligned, 0, 1) - 1.0) < 1e-6);
  CHECK(at(rope.keys.aligned, 0, 2) < 0.99);
  CHECK(std::abs(at(similarity(heads, free_basis(4), moments).keys.aligned, 0, 2) - 1.0) < 1e-6);
  const HeadSimilarity fixed = similarity(heads, {}, moments);
  CHECK(fixed.keys.aligned == fixed.keys.raw);
}

TEST_CASE("inspect --similarity reports the energy that sharing keeps with given statistics",
          "[converter]") {
  const std::string model = golden("llama_mha").string();
  const TemporaryDirectory directory;
  const std::string statistics = (directory / "stats.safetensors").string();
  put_statistics(statistics, open_model(model), 3.0);
  const ProgramResult found =
      run_program({"inspect", model, "--similarity", "--calibration", statistics, "--json"});
  CAPTURE(found.err);
  REQUIRE(found.exit_code == 0);
  const auto layers = found.json()["similarity"];
  REQUIRE(!layers.empty());
  for (const auto& layer : layers) {
    const auto heads = layer["kv_heads"].get<std::size_t>();
    CHECK(layer["grouped_kv_heads"].get<std::size_t>() * 2 == heads);
    CHECK(layer["keys"]["raw"].size() == heads);
    CHECK(layer["values"]["aligned"][0].size() == heads);
    CHECK(layer["keys"]["aligned_within_groups"] >= layer["keys"]["raw_within_groups"]);
    CHECK(layer["lowrank"]["value_energy_kept"] > layer["mean"]["value_energy_kept"]);
  }
  const ProgramResult guessed = run_program({"inspect", model, "--similarity", "--json"});
  for (const auto& layer : guessed.json()["similarity"]) {
    CHECK(layer.contains("keys"));
    CHECK_FALSE(layer.contains("lowrank"));
    CHECK_FALSE(layer.contains("mean"));
  }
  CHECK(guessed.err.find("regroup calibrate " + model) != std::string::npos);
  const std::string page = (directory / "page.html").string();
  REQUIRE(run_program({"inspect", model, "--similarity", "--html", page}).exit_code == 0);
  CHECK(bytes_of_file(page).find("keys aligned") != std::string::npos);
  const ProgramResult grouped = run_program({"inspect", model, "--similarity", "--kv-heads", "1"});
  CHECK(grouped.out.find("-> 1") != std::string::npos);
  CHECK(run_program({"inspect", model, "--kv-heads", "1"}).exit_code == 2);
  CHECK(run_program({"inspect", model, "--similarity", "--kv-heads", "7"}).exit_code == 2);
}

TEST_CASE("inspect --similarity groups by the smallest factor of the kv heads", "[converter]") {
  for (const auto& [heads, groups] : {std::pair{3, 1}, {9, 3}, {4, 2}, {7, 1}}) {
    CAPTURE(heads);
    const TemporaryDirectory directory;
    put_model(directory / "model", tiny_llama({.query_heads = heads, .kv_heads = heads}));
    const ProgramResult found =
        run_program({"inspect", directory / "model", "--similarity", "--json"});
    CAPTURE(found.err);
    REQUIRE(found.exit_code == 0);
    CHECK(found.json()["similarity"][0]["grouped_kv_heads"] == groups);
  }
}

}  // namespace
}  // namespace regroup

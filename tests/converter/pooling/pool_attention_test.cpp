// Pooling methods on whole layers: invariants and losses.
#include "converter/pooling/pool_attention.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include "tests/converter/pooling/small_attention.h"

namespace regroup {
namespace {

constexpr PoolMethod kEveryMethod[] = {PoolMethod::kMean, PoolMethod::kFirst, PoolMethod::kRandom,
                                       PoolMethod::kLowrank};

// Without RoPE, half-split, interleaved and partial. Then the same with distances.
std::vector<HeadBasis> every_basis() {
  return {free_basis(4),
          {{{0, 2}, {1, 3}}, {}},
          {{{0, 1}, {2, 3}}, {}},
          {{{0, 1}}, {2, 3}},
          {{{0, 2}, {1, 3}}, {}, {1.0, 0.1}},
          {{{0, 1}, {2, 3}}, {}, {1.0, 0.01}},
          {{{0, 1}}, {2, 3}, {0.5}}};
}

// If the basis has frequencies, attention decreases with the distance.
PoolingTask task_of(PoolMethod method, std::int64_t groups, const HeadBasis& basis,
                    const InputMoments& moments) {
  PoolingTask task{method, groups, basis, moments, moments};
  if (!basis.frequencies.empty()) {
    ModelSpec spec;
    spec.query_heads = 12;  // the largest of all tests
    spec.max_positions = 9;
    task.distances = usual_distances(spec);
  }
  return task;
}

// Replaces the kv heads of each group by copies of its first.
void repeat_first_heads(AttentionHeads& heads, std::int64_t groups) {
  const std::int64_t members = heads.kv_heads / groups;
  for (DenseLinear* linear : {&heads.k, &heads.v}) {
    const at::Tensor weight = weight_of(*linear, heads.head_dim);
    for (std::int64_t j = 0; j < heads.kv_heads; ++j) {
      weight.select(0, j).copy_(weight.select(0, j / members * members).clone());
      if (!linear->bias.empty()) {
        const at::Tensor bias = bias_of(*linear, heads.head_dim);
        bias.select(0, j).copy_(bias.select(0, j / members * members).clone());
      }
    }
  }
}

at::Tensor random_rotation(std::int64_t size, RandomNumbers& random) {
  return std::get<0>(at::linalg_qr(random({size, size})));
}

// A change of basis that keeps the attention output: a random matrix for the free features and an
// angle for each plane. With `scales` neither preserves lengths.
at::Tensor random_gauge(const HeadBasis& basis, std::int64_t d, bool scales,
                        RandomNumbers& random) {
  at::Tensor gauge = at::zeros({d, d}, at::kDouble);
  const auto count = static_cast<std::int64_t>(basis.free.size());
  const at::Tensor part =
      scales ? random({count, count}) + 2 * at::eye(count, at::kDouble)
             : (count > 0 ? random_rotation(count, random) : at::zeros({0, 0}, at::kDouble));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < count; ++j) {
      gauge[basis.free[static_cast<std::size_t>(i)]][basis.free[static_cast<std::size_t>(j)]] =
          part[i][j];
    }
  }
  for (const auto& [a, b] : basis.rope_planes) {
    const double angle = 3 * random({1}).item<double>();
    const double size = scales ? 1.5 + std::tanh(random({1}).item<double>()) : 1.0;
    gauge[a][a] = size * std::cos(angle);
    gauge[a][b] = -size * std::sin(angle);
    gauge[b][a] = size * std::sin(angle);
    gauge[b][b] = size * std::cos(angle);
  }
  return gauge;
}

void transform(DenseLinear& linear, std::int64_t head, std::int64_t d, const at::Tensor& matrix) {
  const at::Tensor weight = weight_of(linear, d).select(0, head);
  weight.copy_(at::matmul(matrix, weight));
  if (!linear.bias.empty()) {
    const at::Tensor bias = bias_of(linear, d).select(0, head);
    bias.copy_(at::matmul(matrix, bias));
  }
}

// Expresses every kv head in its own basis.
void change_bases(AttentionHeads& heads, const HeadBasis& basis, bool scales,
                  RandomNumbers& random) {
  const std::int64_t d = heads.head_dim;
  const std::int64_t readers = heads.query_heads / heads.kv_heads;
  for (std::int64_t j = 0; j < heads.kv_heads; ++j) {
    const at::Tensor of_k = random_gauge(basis, d, scales, random);
    const at::Tensor of_v = random_gauge(free_basis(d), d, scales, random);
    transform(heads.k, j, d, of_k);
    transform(heads.v, j, d, of_v);
    for (std::int64_t h = j * readers; h < (j + 1) * readers; ++h) {
      transform(heads.q, h, d, at::linalg_inv(of_k).t());
      const at::Tensor output = output_of(heads).select(1, h);
      output.copy_(at::matmul(output, at::linalg_inv(of_v)));
    }
  }
}

TEST_CASE("as many groups as heads change no tensor with any method", "[converter]") {
  RandomNumbers random(1);
  const AttentionHeads heads = random_heads({.biases = true}, random);
  const InputMoments moments = random_moments(30, random);
  for (const PoolMethod method : kEveryMethod) {
    const PooledAttention pooled = pool_attention(heads, task_of(method, 6, {}, moments));
    CHECK(pooled.heads.q.weight == heads.q.weight);
    CHECK(pooled.heads.k.weight == heads.k.weight);
    CHECK(pooled.heads.v.weight == heads.v.weight);
    CHECK(pooled.heads.o.weight == heads.o.weight);
    CHECK(pooled.heads.o.bias == heads.o.bias);
    CHECK(pooled.groups.size() == 6);
  }
}

TEST_CASE("groups of equal heads are pooled without loss by every method", "[converter]") {
  for (const HeadBasis& basis : every_basis()) {
    for (const PoolMethod method : kEveryMethod) {
      for (const bool biases : {false, true}) {
        RandomNumbers random(2);
        AttentionHeads heads = random_heads({.biases = biases}, random);
        repeat_first_heads(heads, 2);
        const InputMoments moments = random_moments(30, random);
        const PooledAttention pooled = pool_attention(heads, task_of(method, 2, basis, moments));
        const at::Tensor inputs = random({9, 30});
        CAPTURE(name_of(method), biases, basis.rope_planes.size(), basis.frequencies);
        CHECK(pooled.heads.kv_heads == 2);
        CHECK(distance(attend(pooled.heads, basis, inputs), attend(heads, basis, inputs)) < 1e-9);
        CHECK(std::abs(pooled.groups[1].key_energy - 1.0) < 1e-9);
        CHECK(std::abs(pooled.groups[1].value_energy - 1.0) < 1e-9);
        CHECK(std::abs(pooled.groups[0].key_norm - 1.0) < 1e-9);
        CHECK(std::abs(pooled.groups[0].value_norm - 1.0) < 1e-9);
      }
    }
  }
}

// The error of pooling into two groups of equal heads, each expressed in its own basis.
double error_after_change(PoolMethod method, const HeadBasis& basis, bool scales,
                          const HeadBasis& changed, const SmallSizes& sizes) {
  RandomNumbers random(3);
  AttentionHeads heads = random_heads(sizes, random);
  repeat_first_heads(heads, 2);
  change_bases(heads, changed, scales, random);
  const InputMoments moments = random_moments(sizes.width, random);
  const PooledAttention pooled = pool_attention(heads, task_of(method, 2, basis, moments));
  const at::Tensor inputs = random({9, sizes.width});
  return distance(attend(pooled.heads, basis, inputs), attend(heads, basis, inputs));
}

TEST_CASE("lowrank merges copies that differ by an invertible change of basis without loss",
          "[converter]") {
  for (const HeadBasis& basis : every_basis()) {
    for (const bool biases : {false, true}) {
      CAPTURE(basis.rope_planes.size(), basis.free.size(), basis.frequencies, biases);
      const SmallSizes sizes{.biases = biases};
      CHECK(error_after_change(PoolMethod::kLowrank, basis, true, basis, sizes) < 1e-7);
      CHECK(error_after_change(PoolMethod::kLowrank, basis, false, basis, sizes) < 1e-8);
      CHECK(error_after_change(PoolMethod::kMean, basis, false, basis, sizes) > 1e-2);
    }
  }
}

TEST_CASE("copies of a kv head in a grouped model are merged without loss", "[converter]") {
  const SmallSizes sizes{.query_heads = 12, .kv_heads = 4, .biases = true};
  for (const HeadBasis& basis : every_basis()) {
    CHECK(error_after_change(PoolMethod::kLowrank, basis, true, basis, sizes) < 1e-7);
  }
}

TEST_CASE("a rotation across RoPE's planes changes the attention output", "[converter]") {
  RandomNumbers random(4);
  AttentionHeads heads = random_heads({}, random);
  const HeadBasis planes = every_basis()[1];
  const at::Tensor inputs = random({9, 30});
  const at::Tensor before = attend(heads, planes, inputs);
  AttentionHeads turned = heads;
  change_bases(turned, planes, true, random);
  CHECK(distance(attend(turned, planes, inputs), before) < 1e-9);
  change_bases(turned, free_basis(4), false, random);
  CHECK(distance(attend(turned, planes, inputs), before) > 1e-2);
}

// E|R_j (x_j − back x)|² by its definition: for keys over all pairs of an independent query and
// key, for values over the output. M(h) is the map of input rows: [D + 1, ...].
double expected_square(const at::Tensor& left, const at::Tensor& left_moment,
                       const at::Tensor& right, const at::Tensor& right_moment) {
  const at::Tensor product = at::matmul(left.t(), right);  // [left inputs, right inputs]
  return at::einsum("ij,ik,kl,jl->", {product, left_moment, product, right_moment}).item<double>();
}

at::Tensor tensor_of(const std::vector<double>& values, std::int64_t width) {
  return at::from_blob(const_cast<double*>(values.data()), {width, width}, at::kDouble).clone();
}

at::Tensor vector_of(const std::vector<double>& values) {
  return at::from_blob(const_cast<double*>(values.data()),
                       {static_cast<std::int64_t>(values.size())}, at::kDouble)
      .clone();
}

struct Residuals {
  double keys = 0.0, values = 0.0, all_keys = 0.0, all_values = 0.0;
};

// Without RoPE and biases. The difference of two low-rank maps is a map of twice the rank.
Residuals brute_force(AttentionHeads before, AttentionHeads after, const InputMoments& moments) {
  const std::int64_t width = moments.width(), d = before.head_dim;
  const at::Tensor covariance = tensor_of(moments.covariance, width);
  const at::Tensor mean = vector_of(moments.mean);
  const at::Tensor second = covariance + mean.unsqueeze(1) * mean;
  const at::Tensor one = at::eye(width, at::kDouble);
  Residuals found;
  for (std::int64_t h = 0; h < before.query_heads; ++h) {
    const auto head = [&](DenseLinear& linear, std::int64_t heads) {
      return weight_of(linear, d).select(0, h / (before.query_heads / heads));
    };
    const at::Tensor q = head(before.q, before.query_heads);
    const at::Tensor k = head(before.k, before.kv_heads);
    const at::Tensor v = head(before.v, before.kv_heads);
    const at::Tensor o = output_of(before).select(1, h).t();  // [d, E]
    const at::Tensor q_new = head(after.q, before.query_heads);
    const at::Tensor k_new = head(after.k, after.kv_heads);
    const at::Tensor v_new = head(after.v, after.kv_heads);
    const at::Tensor o_new = output_of(after).select(1, h).t();
    // Errors of scores change the output in proportion to the differences of values.
    const double spread = expected_square(o, one, v, covariance);
    found.all_keys += spread * expected_square(q, second, k, covariance);
    found.all_values += expected_square(o, one, v, second);
    found.keys +=
        spread * expected_square(at::cat({q, q_new}), second, at::cat({k, -k_new}), covariance);
    found.values += expected_square(at::cat({o, o_new}), one, at::cat({v, -v_new}), second);
  }
  return found;
}

TEST_CASE("the reported energy is the expected squared error", "[converter]") {
  for (const PoolMethod method : kEveryMethod) {
    RandomNumbers random(5);
    const AttentionHeads heads = random_heads({}, random);
    const InputMoments moments = random_moments(30, random);
    const PooledAttention pooled =
        pool_attention(heads, task_of(method, 1, free_basis(4), moments));
    const Residuals found = brute_force(heads, pooled.heads, moments);
    CAPTURE(name_of(method));
    CHECK(std::abs(pooled.groups[0].key_energy - (1 - found.keys / found.all_keys)) < 1e-9);
    CHECK(std::abs(pooled.groups[0].value_energy - (1 - found.values / found.all_values)) < 1e-9);
  }
}

TEST_CASE("lowrank keeps more than the mean", "[converter]") {
  for (const HeadBasis& basis : every_basis()) {
    for (const std::int64_t groups : {3, 2, 1}) {
      RandomNumbers random(6);
      const AttentionHeads heads = random_heads({.biases = true}, random);
      const InputMoments moments = random_moments(30, random);
      const auto kept = [&](PoolMethod method) {
        return pool_attention(heads, task_of(method, groups, basis, moments)).groups[0];
      };
      const GroupReport mean = kept(PoolMethod::kMean), lowrank = kept(PoolMethod::kLowrank);
      CAPTURE(groups, basis.rope_planes.size(), basis.frequencies);
      CHECK(lowrank.key_energy > mean.key_energy);
      CHECK(lowrank.value_energy > mean.value_energy);
      CHECK(mean.key_norm < 0.95);
      CHECK(std::abs(lowrank.value_norm - 1) < 1e-9);
    }
  }
}

// Gives queries and keys a norm over each head, or over all together.
void add_norms(AttentionHeads& heads, bool each, bool even, RandomNumbers& random) {
  const auto norm_of = [&](std::int64_t heads_normalised) {
    const std::int64_t weights = (each ? 1 : heads_normalised) * heads.head_dim;
    const at::Tensor values = random({weights}) * (even ? 0.0 : 0.2) + 1.0;
    return DenseLinear{weights,
                       1,
                       {values.const_data_ptr<double>(), values.const_data_ptr<double>() + weights},
                       {}};
  };
  heads.q_norm = norm_of(heads.query_heads);
  heads.k_norm = norm_of(heads.kv_heads);
}

// Turns the planes of every second kv head by an angle for each.
void turn_planes(AttentionHeads& heads, const HeadBasis& basis) {
  const at::Tensor weight = weight_of(heads.k, heads.head_dim);
  double angle = 0.4;
  for (std::int64_t head = 1; head < heads.kv_heads; head += 2) {
    for (const auto& [a, b] : basis.rope_planes) {
      const at::Tensor x = weight[head][a].clone(), y = weight[head][b].clone();
      weight[head][a].copy_(x * std::cos(angle) - y * std::sin(angle));
      weight[head][b].copy_(x * std::sin(angle) + y * std::cos(angle));
      angle += 0.7;
    }
  }
}

TEST_CASE("lowrank merges normalised heads that are rotations of one another without loss",
          "[converter]") {
  for (const bool each : {false, true}) {
    for (const HeadBasis& basis : every_basis()) {
      CAPTURE(each, basis.rope_planes.size(), basis.free.size(), basis.frequencies);
      RandomNumbers random(5);
      AttentionHeads heads = random_heads({}, random);
      add_norms(heads, each, true, random);
      repeat_first_heads(heads, 3);
      turn_planes(heads, basis);
      const InputMoments moments = random_moments(30, random);
      const at::Tensor inputs = random({9, 30});
      const auto error = [&](PoolMethod method) {
        const PooledAttention pooled = pool_attention(heads, task_of(method, 3, basis, moments));
        return distance(attend(pooled.heads, basis, inputs), attend(heads, basis, inputs));
      };
      CHECK(error(PoolMethod::kLowrank) < 1e-6);
      CHECK((basis.rope_planes.empty() || error(PoolMethod::kMean) > 1e-2));
    }
  }
}

// Heads that share most of what they compute: as those of models, unlike independent random ones.
AttentionHeads related_heads(RandomNumbers& random) {
  AttentionHeads heads = random_heads({}, random);
  for (DenseLinear* linear : {&heads.k, &heads.v}) {
    const at::Tensor weight = weight_of(*linear, heads.head_dim);  // [N, d, D]
    const at::Tensor common = random({heads.head_dim, 30});
    for (std::int64_t head = 0; head < heads.kv_heads; ++head) {
      weight[head].mul_(0.3).add_(at::matmul(random({4, 4}), common));
    }
  }
  return heads;
}

TEST_CASE("lowrank of normalised heads is nearer to their attention than the mean", "[converter]") {
  for (const bool each : {false, true}) {
    for (const HeadBasis& basis : every_basis()) {
      CAPTURE(each, basis.rope_planes.size(), basis.free.size(), basis.frequencies);
      double lowrank = 0.0, mean = 0.0;
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        RandomNumbers random(seed);
        AttentionHeads heads = related_heads(random);
        heads.norm_offset = -0.4;  // small weights, so that attention is not one-hot
        add_norms(heads, each, false, random);
        const InputMoments moments = random_moments(30, random);
        const at::Tensor covariance =
            at::from_blob(const_cast<double*>(moments.covariance.data()), {30, 30}, at::kDouble);
        const at::Tensor inputs =
            at::matmul(random({40, 30}), at::linalg_cholesky(covariance).t()) +
            at::from_blob(const_cast<double*>(moments.mean.data()), {30}, at::kDouble);
        const at::Tensor expected = attend(heads, basis, inputs);
        const auto error = [&](PoolMethod method) {
          const PooledAttention pooled = pool_attention(heads, task_of(method, 3, basis, moments));
          return (attend(pooled.heads, basis, inputs) - expected).square().sum().item<double>();
        };
        lowrank += error(PoolMethod::kLowrank);
        mean += error(PoolMethod::kMean);
      }
      CHECK(lowrank < 0.8 * mean);
    }
  }
}

TEST_CASE("normalised keys in a fixed basis are averaged and values are still solved for",
          "[converter]") {
  RandomNumbers random(7);
  const AttentionHeads heads = random_heads({}, random);
  const InputMoments moments = random_moments(30, random);
  const PooledAttention mean = pool_attention(heads, task_of(PoolMethod::kMean, 3, {}, moments));
  const PooledAttention pooled =
      pool_attention(heads, task_of(PoolMethod::kLowrank, 3, {}, moments));
  CHECK(pooled.heads.q.weight == heads.q.weight);
  CHECK(pooled.heads.k.weight == mean.heads.k.weight);
  CHECK(pooled.heads.v.weight != mean.heads.v.weight);
  CHECK(pooled.groups[0].value_energy > mean.groups[0].value_energy);
}

TEST_CASE("zero heads stay zero", "[converter]") {
  RandomNumbers random(8);
  AttentionHeads heads = random_heads({}, random);
  weight_of(heads.k, 4).zero_();
  weight_of(heads.v, 4).zero_();
  for (const HeadBasis& basis : every_basis()) {
    for (const PoolMethod method : kEveryMethod) {
      const PooledAttention pooled =
          pool_attention(heads, task_of(method, 2, basis, random_moments(30, random)));
      for (const DenseLinear* linear :
           {&pooled.heads.q, &pooled.heads.k, &pooled.heads.v, &pooled.heads.o}) {
        CHECK(all_finite(linear->weight));
        CHECK(all_finite(linear->bias));
      }
      CHECK(weight_of(const_cast<AttentionHeads&>(pooled.heads).k, 4).abs().max().item<double>() ==
            0.0);
    }
  }
}

TEST_CASE("a number of groups that does not divide the heads is refused", "[converter]") {
  RandomNumbers random(9);
  const AttentionHeads heads = random_heads({}, random);
  CHECK_THROWS(
      pool_attention(heads, task_of(PoolMethod::kLowrank, 4, {}, random_moments(30, random))));
}

TEST_CASE("means of values cause a loss only if the output has no bias to absorb them",
          "[converter]") {
  RandomNumbers random(23);
  AttentionHeads heads = random_heads({.biases = true}, random);
  for (DenseLinear* linear : {&heads.k, &heads.v}) {
    for (std::int64_t head = 1; head < 6; ++head) {  // only the means of values differ
      weight_of(*linear, 4).select(0, head).copy_(weight_of(*linear, 4).select(0, 0));
    }
  }
  const InputMoments moments = random_moments(30, random);
  for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kFirst, PoolMethod::kLowrank}) {
    CAPTURE(name_of(method));
    const PooledAttention pooled =
        pool_attention(heads, task_of(method, 2, free_basis(4), moments));
    for (const GroupReport& group : pooled.groups) {
      CHECK((group.value_energy < 1.0 - 1e-3) == !needs_solver(method));
    }
  }
}

}  // namespace
}  // namespace regroup

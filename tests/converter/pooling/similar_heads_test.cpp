// The grouping of a layer's heads, and that its predicted loss equals the loss of pooling.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <catch2/catch_test_macros.hpp>

#include "converter/pooling/pool_attention.h"
#include "tests/converter/pooling/small_attention.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

std::vector<HeadBasis> searched_bases() {
  return {free_basis(4), {{{0, 2}, {1, 3}}, {}}, {{{0, 1}}, {2, 3}}, {}};
}

PoolingTask grouping_task(PoolMethod method, std::int64_t groups, const HeadBasis& basis,
                          const InputMoments& moments) {
  return {method, groups, basis, moments, moments};
}

std::vector<std::int64_t> order_of(const Partition& partition) {
  std::vector<std::int64_t> order;
  for (const HeadGroup& group : partition) {
    order.insert(order.end(), group.begin(), group.end());
  }
  return order;
}

// The lost share of the layer's energy, for keys and values together.
double loss_of(const PooledAttention& pooled) {
  double loss = 0.0;
  for (const GroupReport& group : pooled.groups) {
    loss += group.key_share * (1 - group.key_energy) + group.value_share * (1 - group.value_energy);
  }
  return loss;
}

TEST_CASE("similar heads are found at any position", "[converter]") {
  for (const HeadBasis& basis : searched_bases()) {
    for (const PoolMethod method :
         {PoolMethod::kMean, PoolMethod::kFirst, PoolMethod::kRandom, PoolMethod::kLowrank}) {
      RandomNumbers random(11);
      AttentionHeads heads = random_heads({}, random);
      for (const auto& [from, to] : {std::pair{0, 4}, {0, 3}, {5, 1}, {5, 2}}) {
        for (DenseLinear* linear : {&heads.k, &heads.v}) {
          weight_of(*linear, 4).select(0, to).copy_(weight_of(*linear, 4).select(0, from));
        }
      }
      CAPTURE(name_of(method), basis.rope_planes.size());
      const SimilarHeads found =
          find_similar_heads(heads, grouping_task(method, 2, basis, random_moments(30, random)));
      CHECK(found.partition == Partition{{0, 3, 4}, {1, 2, 5}});
      CHECK(std::abs(found.loss) < 1e-9);
      CHECK(found.contiguous_loss > 1e-2);
    }
  }
}

TEST_CASE("the loss of a partition equals the loss of pooling its groups", "[converter]") {
  for (const HeadBasis& basis : searched_bases()) {
    for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kFirst, PoolMethod::kLowrank}) {
      for (const std::int64_t groups : {3, 2}) {
        RandomNumbers random(12);
        const AttentionHeads heads = random_heads({.query_heads = 12, .biases = true}, random);
        const PoolingTask task = grouping_task(method, groups, basis, random_moments(30, random));
        const SimilarHeads found = find_similar_heads(heads, task);
        CAPTURE(name_of(method), basis.rope_planes.size(), groups);
        CHECK(found.loss <= found.contiguous_loss);
        CHECK(std::abs(loss_of(pool_attention(heads, task)) - found.contiguous_loss) < 1e-9);
        const AttentionHeads moved = in_order(heads, order_of(found.partition));
        CHECK(std::abs(loss_of(pool_attention(moved, task)) - found.loss) < 1e-9);
      }
    }
  }
}

TEST_CASE("reordered heads compute the same output", "[converter]") {
  RandomNumbers random(13);
  const AttentionHeads heads = random_heads({.query_heads = 12, .biases = true}, random);
  const HeadBasis basis = searched_bases()[1];
  const at::Tensor inputs = random({9, 30});
  AttentionHeads moved = in_order(heads, {3, 0, 5, 1, 4, 2});
  CHECK(distance(attend(moved, basis, inputs), attend(heads, basis, inputs)) < 1e-12);
  moved.o = heads.o;
  CHECK(distance(attend(moved, basis, inputs), attend(heads, basis, inputs)) > 1e-2);
}

TEST_CASE("pooling and grouping stop on request", "[converter]") {
  RandomNumbers random(15);
  const AttentionHeads heads = random_heads({}, random);
  const std::atomic<bool> stop{true};
  PoolingTask task = grouping_task(PoolMethod::kLowrank, 2, {}, random_moments(30, random));
  task.stop = &stop;
  const auto kind_of = [](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kUsage;
  };
  CHECK(kind_of([&] { pool_attention(heads, task); }) == ErrorKind::kInterrupted);
  CHECK(kind_of([&] { find_similar_heads(heads, task); }) == ErrorKind::kInterrupted);
}

}  // namespace
}  // namespace regroup

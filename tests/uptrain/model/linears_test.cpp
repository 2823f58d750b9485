// Several linear maps of one input against LibTorch's own gradients.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "uptrain/model/layers.h"

namespace regroup {
namespace {

using torch::autograd::variable_list;

at::Tensor random_leaf(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::TensorOptions(type)).requires_grad_();
}

// Gradients of a sum over the results with fixed factors; the result `unused` is left out.
variable_list gradients_of(const std::vector<at::Tensor>& results, const variable_list& leaves,
                           std::size_t unused) {
  at::Tensor sum;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i != unused) {
      const at::Tensor part = (results[i].sin() * static_cast<double>(i + 1)).sum();
      sum = sum.defined() ? sum + part : part;
    }
  }
  variable_list wanted;
  for (const at::Tensor& leaf : leaves) {
    if (leaf.defined() && leaf.requires_grad()) {
      wanted.push_back(leaf);
    }
  }
  return wanted.empty() ? variable_list()
                        : torch::autograd::grad({sum}, wanted, {}, /*retain_graph=*/true, false,
                                                /*allow_unused=*/true);
}

void compare(const std::vector<Linear>& maps, const at::Tensor& x, std::size_t unused) {
  variable_list leaves{x};
  std::vector<at::Tensor> apart;
  for (const Linear& map : maps) {
    leaves.insert(leaves.end(), {map.weight, map.bias});
    apart.push_back(map(x));
  }
  const std::vector<at::Tensor> together = run_linears(maps, x);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    CHECK(together[i].equal(apart[i]));
  }
  const variable_list of_weights(leaves.begin() + 1, leaves.end());
  for (const variable_list& wanted : {leaves, of_weights}) {  // with that of x, and without
    const variable_list expected = gradients_of(apart, wanted, unused);
    const variable_list found = gradients_of(together, wanted, unused);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      REQUIRE(found[i].defined() == expected[i].defined());
      if (found[i].defined()) {
        CHECK(found[i].sizes() == expected[i].sizes());
        CHECK(at::allclose(found[i], expected[i], 1e-12, 1e-12));
      }
    }
  }
}

TEST_CASE("several maps of one input have the gradients of each by itself", "[uptrain]") {
  constexpr std::size_t kNone = 9;
  const at::Tensor x = random_leaf({2, 5, 6}, at::kDouble);
  for (const bool biased : {false, true}) {
    for (const bool input_major : {false, true}) {
      CAPTURE(biased, input_major);
      std::vector<Linear> maps;
      for (const std::int64_t width : {8, 4, 3}) {
        maps.push_back({input_major ? random_leaf({6, width}, at::kDouble)
                                    : random_leaf({width, 6}, at::kDouble),
                        biased ? random_leaf({width}, at::kDouble) : at::Tensor(), input_major});
      }
      compare(maps, x, kNone);
      compare(maps, x, 1);
      maps[0].weight.requires_grad_(false);
      compare(maps, x, kNone);
      for (Linear& map : maps) {
        map.weight.requires_grad_(false);
      }
      compare(maps, x, 2);
      maps[2].bias = at::Tensor();  // some with a bias and some without
      compare(maps, x, kNone);
    }
  }
}

}  // namespace
}  // namespace regroup

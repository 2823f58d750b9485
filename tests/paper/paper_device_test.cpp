// The paper device itself: what it computes, counts and refuses.
#include "tests/paper/paper_device.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/golden_case.h"
#include "uptrain/model/device.h"

namespace regroup {
namespace {

at::Tensor on_paper(const at::Tensor& host) { return host.to(paper_device()); }

TEST_CASE("the paper device computes what the CPU computes", "[paper]") {
  const at::Tensor a = at::randn({5, 7}), b = at::randn({7, 3});
  CHECK(at::matmul(on_paper(a), on_paper(b)).cpu().equal(at::matmul(a, b)));
  CHECK(on_paper(a).t().select(0, 2).cpu().equal(a.t().select(0, 2)));
  CHECK(at::arange(9, at::TensorOptions(at::kLong).device(paper_device())).sum().item<int>() == 36);
  at::Tensor changed = on_paper(a);
  changed.narrow(0, 1, 2).mul_(2.0);
  CHECK(changed.cpu().narrow(0, 1, 2).equal(a.narrow(0, 1, 2) * 2.0));
}

TEST_CASE("the paper device differentiates on its own thread", "[paper]") {
  const at::Tensor a = at::randn({5, 7});
  const at::Tensor leaf = on_paper(a).requires_grad_();
  const auto gradients = torch::autograd::grad({leaf.square().sum()}, {leaf});
  CHECK(largest_difference(gradients.front().cpu(), a * 2) < 1e-6);
}

TEST_CASE("an operator that mixes the host and the paper device throws", "[paper]") {
  const at::Tensor a = at::ones({3});
  CHECK_THROWS_AS(on_paper(a) + a, c10::Error);
  CHECK((on_paper(a) + 1.0).sum().item<double>() == 6.0);
}

TEST_CASE("launches, copies and waits on the paper device are counted", "[paper]") {
  const at::Tensor here = at::ones({4, 4});
  reset_paper_counts();
  const at::Tensor there = on_paper(here);
  CHECK(paper_counts().uploads == 1);
  CHECK(paper_counts().waits == 1);  // the memory is not pinned
  const at::Tensor sum = there.t().narrow(0, 1, 2) + 1.0;
  CHECK(paper_counts().launches == 1);
  CHECK(sum.sum().item<double>() == 16.0);
  CHECK(paper_counts().waits == 2);
  CHECK(paper_counts().waiting.at("item") == 1);
  there.index({there > 0.0});
  CHECK(paper_counts().waiting.at("aten::index") == 1);
}

TEST_CASE("an upload of several tensors is one copy without a wait", "[paper]") {
  const at::Tensor ids = at::arange(6, at::kLong).view({2, 3}), weights = at::randn({3, 5});
  paper_device();
  reset_paper_counts();
  const auto there = upload({ids, at::Tensor(), weights.t()}, paper_device());
  CHECK(paper_counts().uploads == 1);
  CHECK(paper_counts().waits == 0);
  CHECK(there[0].cpu().equal(ids));
  CHECK_FALSE(there[1].defined());
  CHECK(there[2].cpu().equal(weights.t()));
  CHECK(upload({ids}, c10::kCPU).front().is_same(ids));
}

TEST_CASE("the paper device runs out of memory as a GPU does", "[paper]") {
  paper_device();
  set_paper_memory(1 << 20);
  CHECK_THROWS_AS(at::empty({1 << 20}, at::TensorOptions(at::kFloat).device(paper_device())),
                  c10::OutOfMemoryError);
  set_paper_memory(0);
}

TEST_CASE("peak memory on the paper device is that of its tensors", "[paper]") {
  paper_device();
  at::Tensor kept = at::empty({1 << 18}, at::TensorOptions(at::kFloat).device(paper_device()));
  c10::getDeviceAllocator(paper_device().type())->resetPeakStats(0);
  const double before = peak_memory(paper_device());
  {
    const at::Tensor more = at::empty_like(kept);
  }
  CHECK(peak_memory(paper_device()) == before + static_cast<double>(kept.nbytes()));
}

// Whether CUDA has a fused kernel for these, by its rules.
bool is_fused(const at::Tensor& q, const at::Tensor& k, const std::optional<at::Tensor>& mask,
              bool causal) {
  reset_paper_counts();
  at::scaled_dot_product_attention(q, k, k, mask, 0.0, causal, std::nullopt,
                                   q.size(1) != k.size(1));
  return paper_counts().math_attentions.empty();
}

TEST_CASE("CUDA's rules tell which attention has a fused kernel", "[paper]") {
  const auto draw = [](at::IntArrayRef shape, at::ScalarType type) {
    return at::randn(shape, at::TensorOptions(type).device(paper_device()));
  };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    CAPTURE(c10::toString(type));
    const at::Tensor q = draw({2, 4, 6, 16}, type), k = draw({2, 4, 6, 16}, type);
    const at::Tensor shared = draw({2, 2, 6, 16}, type);
    const at::Tensor mask = draw({1, 4, 6, 6}, type);
    CHECK(is_fused(q, k, {}, true));
    CHECK(is_fused(q, shared, {}, true) == (type == at::kBFloat16));
    CHECK(is_fused(q, k, mask, false));
    CHECK_FALSE(is_fused(q, shared, mask, false));
    CHECK_FALSE(is_fused(q, k, mask.transpose(2, 3), false));  // keys are not side by side
    CHECK_FALSE(is_fused(q.narrow(3, 0, 3), k.narrow(3, 0, 3), mask, false));
  }
}

TEST_CASE("fused attention on the paper device is the CPU's, and so are its gradients", "[paper]") {
  const at::Tensor q = at::randn({2, 4, 6, 16}), k = at::randn({2, 4, 6, 16});
  const at::Tensor mask = at::randn({1, 4, 6, 6}), outer = at::randn({2, 4, 6, 16});
  const auto gradients = [&](at::Device device) {
    const auto leaf = [&](const at::Tensor& x) { return x.to(device).detach().requires_grad_(); };
    const std::vector<at::Tensor> leaves = {leaf(q), leaf(k), leaf(k), leaf(mask)};
    const at::Tensor mixed =
        at::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], leaves[3]);
    auto all = torch::autograd::grad({mixed}, leaves, {outer.to(device)});
    all.push_back(mixed.detach());
    return all;
  };
  const auto there = gradients(paper_device()), here = gradients(c10::kCPU);
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(largest_difference(there[i].cpu(), here[i]) < 1e-5);
  }
}

}  // namespace
}  // namespace regroup

// The fused kernels of GPUs, run on the host thread by thread, and compared with LibTorch in fp64.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/ops/host_launcher.h"
#include "tests/uptrain/ops/relative_error.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/fused_ops.h"
#include "uptrain/ops/rope.h"

namespace regroup {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A tensor whose numbers begin `offset` places after an aligned address.
at::Tensor placed(const at::Tensor& x, std::int64_t offset) {
  at::Tensor memory = at::empty({x.numel() + offset}, x.options());
  at::Tensor place = memory.narrow(0, offset, x.numel()).view(x.sizes());
  place.copy_(x);
  return place;
}

// The same random numbers in every run.
void draw_again() { at::manual_seed(11); }

at::Tensor unset(const at::Tensor& like) { return at::full_like(like, NAN); }

// --- rotation ---

at::Tensor rotated(const at::Tensor& x, const RopeTable& table, bool inverse, bool backwards) {
  const at::Tensor y =
      at::full({x.size(0), x.size(2), x.size(1), x.size(3)}, NAN, x.options()).transpose(1, 2);
  const kernels::RotationCall call = rotation_call(x, y, table, inverse);
  CHECK(kernels::rotate(call, OnHost(backwards)) == nullptr);
  return y;
}

// --- gated activation ---

struct Gated {
  at::Tensor y, by_gate, by_up;
};

Gated gated(Activation activation, const Gated& in, const at::Tensor& outer, bool backwards) {
  const bool silu = activation == Activation::kSilu;
  const kernels::GatedCall call = {.type = number_type(outer),
                                   .gate = in.by_gate.const_data_ptr(),
                                   .up = in.by_up.const_data_ptr(),
                                   .y = in.y.mutable_data_ptr(),
                                   .count = outer.numel(),
                                   .linear = silu ? 1.0F : 1.5957691216F,
                                   .cubic = silu ? 0.0F : 0.044715F * 1.5957691216F};
  const Gated found = {in.y, unset(outer), unset(outer)};
  CHECK(kernels::activate_gated(call, OnHost(backwards)) == nullptr);
  CHECK(kernels::differentiate_gated({.forward = call,
                                      .outer = outer.const_data_ptr(),
                                      .by_gate = found.by_gate.mutable_data_ptr(),
                                      .by_up = found.by_up.mutable_data_ptr()},
                                     OnHost(backwards)) == nullptr);
  return found;
}

// --- RMSNorm ---

constexpr double kEpsilon = 1e-5;

struct Normed {
  at::Tensor sum, y, by_x, by_weight;
};

struct NormInputs {
  at::Tensor x, update, weight, outer, outer_sum;  // update and outer_sum may be undefined
};

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

Normed normed(const NormInputs& in, bool backwards) {
  const std::int64_t rows = in.x.size(0), width = in.x.size(1);
  const at::Tensor inverse = at::full({rows}, NAN, at::kFloat);
  Normed found = {in.update.defined() ? unset(in.x) : in.x, unset(in.x), unset(in.x),
                  at::full({kernels::norm_groups(rows, width), width}, NAN, at::kFloat)};
  const kernels::NormCall forward = {
      .type = number_type(in.x),
      .x = in.x.const_data_ptr(),
      .update = data_or_null(in.update),
      .sum = in.update.defined() ? found.sum.mutable_data_ptr() : nullptr,
      .weight = in.weight.const_data_ptr(),
      .y = found.y.mutable_data_ptr(),
      .inverse = inverse.mutable_data_ptr<float>(),
      .rows = rows,
      .width = width,
      .epsilon = static_cast<float>(kEpsilon)};
  CHECK(kernels::normalise(forward, OnHost(backwards)) == nullptr);
  const kernels::NormGradientCall backward = {
      .type = number_type(in.x),
      .x = found.sum.const_data_ptr(),
      .weight = in.weight.const_data_ptr(),
      .inverse = inverse.const_data_ptr<float>(),
      .outer = in.outer.const_data_ptr(),
      .outer_sum = data_or_null(in.outer_sum),
      .by_x = found.by_x.mutable_data_ptr(),
      .by_weight = found.by_weight.mutable_data_ptr<float>(),
      .rows = rows,
      .width = width};
  CHECK(kernels::differentiate_norm(backward, OnHost(backwards)) == nullptr);
  found.by_weight = found.by_weight.sum(0);
  return found;
}

// The norm of `sum` as the kernel rounded it, and the gradients, in fp64.
Normed exact_norm(const NormInputs& in, const at::Tensor& sum) {
  const at::Tensor x = sum.to(at::kDouble).requires_grad_();
  const at::Tensor weight = in.weight.to(at::kDouble).requires_grad_();
  const at::Tensor y = at::rms_norm(x, {x.size(-1)}, weight, kEpsilon);
  const auto gradients = torch::autograd::grad({y}, {x, weight}, {in.outer.to(at::kDouble)});
  const at::Tensor by_x =
      in.outer_sum.defined() ? gradients[0] + in.outer_sum.to(at::kDouble) : gradients[0];
  return {sum, y.detach(), by_x, gradients[1]};
}

// --- cross-entropy ---

struct Losses {
  at::Tensor losses, gradient;
};

Losses cross_entropy(const at::Tensor& logits, const at::Tensor& targets, bool with_gradient,
                     bool backwards = false) {
  const Losses found = {at::full({logits.size(0)}, NAN, at::kFloat), logits};
  const kernels::CrossEntropyCall call = {.type = number_type(logits),
                                          .logits = logits.mutable_data_ptr(),
                                          .targets = targets.const_data_ptr<std::int64_t>(),
                                          .losses = found.losses.mutable_data_ptr<float>(),
                                          .rows = logits.size(0),
                                          .width = logits.size(1),
                                          .stride = logits.stride(0),
                                          .scale = 0.25F,
                                          .with_gradient = with_gradient};
  CHECK(kernels::take_cross_entropy(call, OnHost(backwards)) == nullptr);
  return found;
}

Losses exact_cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor leaf = logits.to(at::kDouble).requires_grad_();
  const at::Tensor losses = at::cross_entropy_loss(leaf, targets, {}, at::Reduction::None);
  return {losses.detach(), torch::autograd::grad({losses.sum() * 0.25}, {leaf}).front()};
}

// --- AdamW ---

struct Weights {
  at::Tensor master, copy, first, second;
};

Weights update(const Weights& before, const at::Tensor& gradient, float skip, bool backwards) {
  const Weights after = {before.master.clone(), unset(before.copy), before.first.clone(),
                         before.second.clone()};
  static const float kDivisor = 2.0F, kUpdates = 3.0F;
  const kernels::AdamWCall call = {.gradient_type = number_type(gradient),
                                   .moment_type = number_type(after.first),
                                   .gradient = gradient.const_data_ptr(),
                                   .master = after.master.mutable_data_ptr<float>(),
                                   .first = after.first.mutable_data_ptr(),
                                   .second = after.second.mutable_data_ptr(),
                                   .copy = after.copy.mutable_data_ptr(),
                                   .divisor = &kDivisor,
                                   .skip = &skip,
                                   .updates = &kUpdates,
                                   .count = gradient.numel(),
                                   .rate = 0.01F,
                                   .decay = 0.001F,
                                   .one_less_beta1 = 0.1F,
                                   .one_less_beta2 = 0.05F,
                                   .log_beta1 = std::log(0.9F),
                                   .log_beta2 = std::log(0.95F),
                                   .epsilon = 1e-4F};
  CHECK(kernels::update_by_adamw(call, OnHost(backwards)) == nullptr);
  return after;
}

}  // namespace

TEST_CASE("the GPU's AdamW equals LibTorch's, with gradients and moments of both types",
          "[uptrain]") {
  draw_again();
  const std::int64_t count = GENERATE(9, 2048, 5003), offset = GENERATE(0, 1);
  const bool backwards = GENERATE(false, true);
  const auto type = GENERATE(at::kFloat, at::kBFloat16),
             moments = GENERATE(at::kFloat, at::kBFloat16);
  CAPTURE(count, offset, type, moments);
  const at::Tensor gradient = placed(at::randn({count}).to(type), offset);
  const at::Tensor master = at::randn({count});
  const Weights before = {master, master.to(at::kBFloat16), at::randn({count}).to(moments),
                          at::randn({count}).square().to(moments)};
  const Weights found = update(before, gradient, 0.0F, backwards);
  const auto exact = [](const at::Tensor& x) { return x.to(at::kDouble).clone(); };
  const Weights wide = {exact(master), {}, exact(before.first), exact(before.second)};
  at::_fused_adamw_({wide.master}, {exact(gradient)}, {wide.first}, {wide.second}, {},
                    {at::full({}, 3.0)}, 0.01, 0.9, 0.95, 0.1, 1e-4, false, false,
                    at::full({}, 2.0));
  CHECK(relative_error(found.master - master, wide.master - exact(master)) < 1e-5);
  CHECK(relative_error(found.first, wide.first) < (moments == at::kFloat ? 1e-6 : 3e-3));
  CHECK(relative_error(found.second, wide.second) < (moments == at::kFloat ? 1e-6 : 3e-3));
  CHECK(found.copy.equal(found.master.to(at::kBFloat16)));
  const Weights skipped = update(before, at::full_like(gradient, NAN), 1.0F, backwards);
  CHECK(skipped.master.equal(before.master));
  CHECK(skipped.first.equal(before.first));
  CHECK(skipped.second.equal(before.second));
}

TEST_CASE("the GPU's rotation equals the separate operations", "[uptrain]") {
  draw_again();
  const bool interleaved = GENERATE(false, true), backwards = GENERATE(false, true);
  const std::int64_t offset = GENERATE(0, 1);
  const auto [width, turning] = GENERATE(std::pair{64, 64}, std::pair{80, 32}, std::pair{80, 20},
                                         std::pair{7, 2}, std::pair{128, 128});
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 1e-6}, std::pair{at::kBFloat16, 2.5e-3});
  CAPTURE(interleaved, offset, width, turning, type);
  const auto wide = at::TensorOptions(at::kDouble);
  const at::Tensor angles =
      at::outer(at::arange(11, wide), at::arange(1, turning / 2 + 1, wide) / 10.0);
  const RopeTable table = {angles.cos().to(type), angles.sin().to(type), interleaved};
  const RopeTable exact = {table.cosine.to(at::kDouble), table.sine.to(at::kDouble), interleaved};
  const at::Tensor x =
      placed(at::randn({3, 11, 5, width}).to(type), offset).transpose(1, 2);  // [B, n, T, d]
  const at::Tensor turned = rotated(x, table, /*inverse=*/false, backwards);
  CHECK(relative_error(turned, rotate(x.to(at::kDouble), exact)) < tolerance);
  const RopeTable back = {exact.cosine, -exact.sine, interleaved};
  const at::Tensor other = x.contiguous();  // other strides
  CHECK(relative_error(rotated(other, table, /*inverse=*/true, backwards),
                       rotate(other.to(at::kDouble), back)) < tolerance);
  CHECK(relative_error(turned, rotate(x.to(at::kDouble), back)) > 0.1);
  CHECK(rotated(unset(x), table, false, backwards).isnan().all().item<bool>());
}

TEST_CASE("the GPU's gated activations and their gradients equal the separate operations",
          "[uptrain]") {
  draw_again();
  const Activation activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const std::int64_t count = GENERATE(9, 2048, 2056, 5003), offset = GENERATE(0, 1);
  const bool backwards = GENERATE(false, true);
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 2e-6}, std::pair{at::kBFloat16, 4e-3});
  CAPTURE(static_cast<int>(activation), count, offset, type);
  const at::Tensor gate = placed((at::randn({count}) * 3.0).to(type), offset);
  const at::Tensor up = at::randn({count}).to(type), outer = at::randn({count}).to(type);
  const Gated found = gated(activation, {unset(gate), gate, up}, outer, backwards);
  const at::Tensor g = gate.to(at::kDouble).requires_grad_();
  const at::Tensor u = up.to(at::kDouble).requires_grad_();
  const at::Tensor y = (activation == Activation::kSilu ? at::silu(g) : at::gelu(g, "tanh")) * u;
  const auto exact = torch::autograd::grad({y}, {g, u}, {outer.to(at::kDouble)});
  CHECK(relative_error(found.y, y.detach()) < tolerance);
  CHECK(relative_error(found.by_gate, exact[0]) < tolerance);
  CHECK(relative_error(found.by_up, exact[1]) < tolerance);
  CHECK(relative_error(found.by_up, exact[0]) > 0.1);
}

TEST_CASE("the GPU's gated activations saturate and propagate NaN", "[uptrain]") {
  const Activation activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const at::Tensor gate = at::tensor({1000.0F, -1000.0F, 0.0F, NAN, -kInfinity});
  const at::Tensor up = at::full({5}, 3.0F), outer = at::full({5}, 1.0F);
  const Gated found = gated(activation, {unset(gate), gate, up}, outer, false);
  const auto first = [](const at::Tensor& x) { return x.narrow(0, 0, 3); };
  CHECK(at::equal(first(found.y), at::tensor({3000.0F, 0.0F, 0.0F})));
  CHECK(at::equal(first(found.by_gate), at::tensor({3.0F, 0.0F, 1.5F})));
  CHECK(at::equal(first(found.by_up), at::tensor({1000.0F, 0.0F, 0.0F})));
  CHECK(found.y.narrow(0, 3, 2).isnan().all().item<bool>());  // -inf · 0, as in LibTorch
}

TEST_CASE("the GPU's RMSNorm and its gradients equal LibTorch's", "[uptrain]") {
  draw_again();
  const std::int64_t width = GENERATE(1, 7, 64, 1000, 2056, 4099), rows = GENERATE(1, 33, 100);
  const bool added = GENERATE(false, true), backwards = GENERATE(false, true);
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 2e-6}, std::pair{at::kBFloat16, 4e-3});
  CAPTURE(width, rows, added, type);
  const auto draw = [&] { return at::randn({rows, width}).to(type); };
  const NormInputs in = {draw(), added ? draw() : at::Tensor(), (at::randn({width}) + 1.0).to(type),
                         draw(), added ? draw() : at::Tensor()};
  const Normed found = normed(in, backwards);
  CHECK(at::equal(found.sum, added ? in.x + in.update : in.x));
  const Normed exact = exact_norm(in, found.sum);
  CHECK(relative_error(found.y, exact.y) < tolerance);
  // With one number per row, n is 1 or -1, and the sum may be small.
  const double by_weight_tolerance = width == 1 ? 1e-2 : 2 * tolerance;
  CHECK(relative_error(found.by_weight, exact.by_weight) < by_weight_tolerance);
  // With one number per row, only the effect of epsilon remains, the difference of equal numbers.
  CHECK((width == 1 || relative_error(found.by_x, exact.by_x) < 2 * tolerance));
  CHECK(relative_error(found.y, 1.02 * exact.y) > tolerance);
}

TEST_CASE("the GPU's RMSNorm handles unaligned rows, extreme numbers and NaN", "[uptrain]") {
  draw_again();
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const double size = GENERATE(1.0, 1e-12, 1e15);
  CAPTURE(type, size);
  NormInputs in = {placed((at::randn({20, 64}) * size).to(type), 1),
                   {},
                   at::randn({64}).to(type),
                   at::randn({20, 64}).to(type),
                   {}};
  const Normed found = normed(in, false), exact = exact_norm(in, in.x);
  CHECK(relative_error(found.y, exact.y) < 4e-3);
  CHECK(relative_error(found.by_x, exact.by_x) < 1e-2);
  in.x = in.x.clone();
  in.x.select(0, 3).select(0, 5).fill_(NAN);
  const Normed broken = normed(in, false);
  CHECK(broken.y.select(0, 3).isnan().all().item<bool>());
  CHECK_FALSE(broken.y.select(0, 4).isnan().any().item<bool>());
}

TEST_CASE("groups of a weight's gradient have no empty one and cover all rows", "[uptrain]") {
  const std::int64_t rows = GENERATE(1, 16, 17, 100, 8192, 262'144, 1'000'003);
  const std::int64_t width = GENERATE(1, 128, 4096, 20'000, 8'000'000);
  CAPTURE(rows, width);
  const std::int64_t groups = kernels::norm_groups(rows, width);
  kernels::NormGradient<float, 1> work = {};
  work.call.rows = rows;
  work.number_of_groups = groups;
  CHECK(kernels::rows_of_group(work, groups - 1).begin < rows);
  CHECK(kernels::rows_of_group(work, groups - 1).end == rows);
  CHECK(kernels::rows_of_group(work, groups).begin >= rows);  // threads past the last do nothing
  CHECK((groups == 1 || groups * width <= 1 << 22));
}

TEST_CASE("the GPU's cross-entropy and its gradient equal LibTorch's", "[uptrain]") {
  draw_again();
  const std::int64_t vocabulary = GENERATE(1, 37, 64, 5000, 5003), extra = GENERATE(0, 8, 1);
  const bool backwards = GENERATE(false, true);
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 2.5e-3});
  CAPTURE(vocabulary, extra, type);
  const at::Tensor memory = (at::randn({23, vocabulary + extra}) * 5.0).to(type);
  const at::Tensor logits = memory.narrow(1, 0, vocabulary);  // rows with something between them
  const at::Tensor rest = memory.narrow(1, vocabulary, extra).clone();
  const at::Tensor targets = at::randint(vocabulary, {23});
  const Losses exact = exact_cross_entropy(logits, targets);
  const at::Tensor before = logits.clone();
  const Losses only_loss = cross_entropy(logits, targets, /*with_gradient=*/false, backwards);
  CHECK(at::equal(logits, before));
  const Losses found = cross_entropy(logits, targets, /*with_gradient=*/true, backwards);
  CHECK(at::equal(only_loss.losses, found.losses));
  CHECK((found.losses.to(at::kDouble) - exact.losses).abs().max().item<double>() < 1e-5);
  // With a vocabulary of one token the gradient is 0.
  CHECK((vocabulary == 1 ? found.gradient.abs().max().item<double>() == 0.0
                         : relative_error(found.gradient, exact.gradient) < tolerance));
  CHECK(at::equal(memory.narrow(1, vocabulary, extra), rest));
}

TEST_CASE("the GPU's cross-entropy takes extreme logits as LibTorch does", "[uptrain]") {
  draw_again();
  at::Tensor logits = at::randn({5, 70});
  logits.select(0, 0).narrow(0, 0, 60).fill_(-kInfinity);  // whole parts of threads
  logits.select(0, 1).mul_(1e30);
  logits.select(0, 2).fill_(-kInfinity);
  logits.select(0, 3).select(0, 7).fill_(kInfinity);
  logits.select(0, 4).select(0, 7).fill_(NAN);
  const at::Tensor targets = at::tensor({65L, 3L, 0L, 1L, 2L});
  const Losses exact = exact_cross_entropy(logits, targets);
  const Losses found = cross_entropy(logits.clone(), targets, /*with_gradient=*/true);
  for (const std::int64_t row : {0, 1}) {
    CAPTURE(row);
    const double expected = exact.losses.select(0, row).item<double>();
    CHECK(std::abs(found.losses.select(0, row).item<double>() - expected) <= 1e-6 * expected);
    CHECK(relative_error(found.gradient.select(0, row), exact.gradient.select(0, row)) < 1e-5);
  }
  for (const std::int64_t row : {2, 3, 4}) {
    CAPTURE(row);
    CHECK(found.losses.select(0, row).isnan().item<bool>());
    CHECK(found.gradient.select(0, row).isnan().all().item<bool>());
  }
}

TEST_CASE("the GPU's cross-entropy gives NaN for tokens outside the vocabulary", "[uptrain]") {
  draw_again();
  const at::Tensor targets = at::tensor({8L, -1L, 3L});
  const Losses found = cross_entropy(at::randn({3, 8}), targets, /*with_gradient=*/true);
  CHECK(found.losses.narrow(0, 0, 2).isnan().all().item<bool>());
  CHECK(found.gradient.narrow(0, 0, 2).isnan().all().item<bool>());
  CHECK_FALSE(found.gradient.select(0, 2).isnan().any().item<bool>());
  CHECK(std::isfinite(found.losses.select(0, 2).item<double>()));
}

TEST_CASE("the kernels' bf16 rounding is that of LibTorch", "[uptrain]") {
  draw_again();
  const at::Tensor x =
      at::cat({at::randn({5000}) * 1e3, at::tensor({0.0F, -0.0F, 3.4e38F, 1e-41F, 1.00390625F,
                                                    1.01171875F, kInfinity, -kInfinity})});
  const at::Tensor expected = x.to(at::kBFloat16);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    kernels::BFloat16 found = {};
    kernels::narrow(x.const_data_ptr<float>()[i], found);
    const c10::BFloat16 one = expected.const_data_ptr<c10::BFloat16>()[i];
    REQUIRE(found.bits == one.x);
    REQUIRE(kernels::wide(found) == static_cast<float>(one));
  }
  kernels::BFloat16 nan = {};
  kernels::narrow(NAN, nan);
  CHECK(std::isnan(kernels::wide(nan)));
}

}  // namespace regroup

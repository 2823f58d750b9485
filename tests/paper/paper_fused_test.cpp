// The fused kernels of GPUs behind LibTorch's tensors and autograd, run by the host on the paper
// device, and the check that decides whether a device's kernels are used.
#include "tests/paper/paper_fused.h"

#include <array>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/paper/paper_device.h"
#include "tests/uptrain/ops/relative_error.h"
#include "uptrain/ops/fused_ops.h"
#include "uptrain/ops/kernel_check.h"
#include "uptrain/ops/loss.h"

namespace regroup {
namespace {

constexpr std::array kFusedKernels = {FusedKernel::kRotation, FusedKernel::kGatedActivation,
                                      FusedKernel::kRmsNorm, FusedKernel::kCrossEntropy,
                                      FusedKernel::kAdamW};
static_assert(kFusedKernels.size() == static_cast<std::size_t>(FusedKernel::kAdamW) + 1);

// No kernels once the test is over.
struct PaperKernels {
  explicit PaperKernels(const DeviceKernels* all) {
    set_device_kernels(paper_device().type(), all);
  }
  ~PaperKernels() { set_device_kernels(paper_device().type(), nullptr); }
  PaperKernels(const PaperKernels&) = delete;
  PaperKernels& operator=(const PaperKernels&) = delete;
};

bool has(FusedKernel kernel) { return has_fused_kernel(kernel, at::randn({1}).to(paper_device())); }

std::int64_t launches_of(const std::string& name) {
  const PaperCounts counts = paper_counts();
  const auto found = counts.operators.find(name);
  return found == counts.operators.end() ? 0 : found->second;
}

const char* fail_to_launch(const kernels::GatedCall& /*call*/, void* /*stream*/) {
  return "no kernel image is available for execution on the device";
}

const char* run_out_of_memory(const kernels::RotationCall& /*call*/, void* /*stream*/) {
  throw std::runtime_error("no memory\nin two lines");
}

// Rotates the wrong way.
const char* rotate_back(const kernels::RotationCall& call, void* stream) {
  kernels::RotationCall wrong = call;
  wrong.inverse = !call.inverse;
  return paper_kernels().rotate(wrong, stream);
}

// Leaves out the gradient of the sum.
const char* forget_outer_sum(const kernels::NormGradientCall& call, void* stream) {
  kernels::NormGradientCall wrong = call;
  wrong.outer_sum = nullptr;
  return paper_kernels().differentiate_norm(wrong, stream);
}

// Does not divide the gradients.
const char* forget_divisor(const kernels::AdamWCall& call, void* stream) {
  static const float kOne = 1.0F;
  kernels::AdamWCall wrong = call;
  wrong.divisor = &kOne;
  return paper_kernels().update_by_adamw(wrong, stream);
}

// Writes nothing.
const char* do_nothing(const kernels::CrossEntropyCall& /*call*/, void* /*stream*/) {
  return nullptr;
}

// The launches and bytes of a function of bf16 tensors [rows, width] and of its gradients, those
// bytes per element of one of them.
std::string cost_of(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                    const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.to(at::kBFloat16).to(paper_device()).requires_grad_());
  }
  const at::Tensor outer = at::ones_like(function(leaves));
  reset_paper_counts();
  torch::autograd::grad({function(leaves)}, leaves, {outer});
  const PaperCounts counts = paper_counts();
  return fmt::format("{} launches, {:.1f} bytes", counts.launches,
                     static_cast<double>(counts.bytes) / static_cast<double>(inputs[0].numel()));
}

at::Tensor added_norm(const at::Tensor& x, const at::Tensor& update, const at::Tensor& weight) {
  if (can_fuse_rms_norm(x, weight)) {
    const NormedSum both = fused_add_rms_norm(x, update, weight, 1e-5);
    return both.sum * both.normal;
  }
  const at::Tensor sum = x + update;
  return sum * at::rms_norm(sum, {x.size(-1)}, weight, 1e-5);
}

}  // namespace

// test_paper "[bytes]" prints what docs/gpu.md takes its estimate from.
TEST_CASE("prints bytes per element, forward and backward", "[.][bytes]") {
  const at::Tensor x = at::randn({512, 1024}), weight = at::randn({1024});
  const at::Tensor angles = at::randn({512, 64}).to(at::kBFloat16).to(paper_device());
  for (const bool fused : {false, true}) {
    const PaperKernels all(fused ? &paper_kernels() : nullptr);
    fmt::print("{}\n  rotation: {}\n  gated activation: {}\n", fused ? "fused" : "operators",
               cost_of(
                   [&](const auto& in) {
                     return rotate(in[0].view({1, 512, 8, 128}).transpose(1, 2),
                                   {angles, angles, false});
                   },
                   {x}),
               cost_of(
                   [](const auto& in) {
                     return can_fuse_gated_activation(Activation::kSilu, in[0], in[1])
                                ? fused_gated_activation(Activation::kSilu, in[0], in[1])
                                : at::silu(in[0]) * in[1];
                   },
                   {x, x}));
    fmt::print(
        "  sum and its norm, and a product of the two: {}\n",
        cost_of([](const auto& in) { return added_norm(in[0], in[1], in[2]); }, {x, x, weight}));
    const at::Tensor targets = at::randint(32'000, {512}).to(paper_device());
    const at::Tensor hidden = at::randn({512, 1}), head = at::randn({32'000, 1});
    const std::vector<at::Tensor> leaves = {
        hidden.to(at::kBFloat16).to(paper_device()).requires_grad_(),
        head.to(at::kBFloat16).to(paper_device()).requires_grad_()};
    reset_paper_counts();
    next_token_loss({leaves[0], leaves[1]}, targets);
    const PaperCounts counts = paper_counts();
    fmt::print("  loss, with its linear maps: {} launches, {:.1f} bytes per logit\n",
               counts.launches, static_cast<double>(counts.bytes) / (512.0 * 32'000.0));
  }
}

TEST_CASE("fused kernels that agree with LibTorch's operators are used", "[paper]") {
  const PaperKernels all(&paper_kernels());
  reset_paper_counts();
  CHECK(check_device_kernels(paper_device()).empty());
  for (const FusedKernel kernel : kFusedKernels) {
    CHECK(has(kernel));
  }
  for (const char* name :
       {"regroup::rotation", "regroup::gated_activation", "regroup::gated_activation_gradient",
        "regroup::rms_norm", "regroup::rms_norm_gradient", "regroup::cross_entropy",
        "regroup::adamw"}) {
    CAPTURE(name);
    CHECK(launches_of(name) >= 4);  // two types, two alignments
  }
}

TEST_CASE("a fused kernel that differs or fails is named and not used", "[paper]") {
  struct Fault {
    DeviceKernels kernels;
    FusedKernel kernel;
    const char* said;
  };
  std::vector<Fault> faults(6, {paper_kernels(), FusedKernel::kRotation, "RoPE differs by"});
  faults[0].kernels.rotate = rotate_back;
  faults[1].kernels.activate_gated = fail_to_launch;
  faults[1].kernel = FusedKernel::kGatedActivation;
  faults[1].said =
      "gated activations failed: a fused kernel could not be launched: no kernel image";
  faults[2].kernels.differentiate_norm = forget_outer_sum;
  faults[2].kernel = FusedKernel::kRmsNorm;
  faults[2].said = "RMSNorm differs by";
  faults[3].kernels.take_cross_entropy = do_nothing;
  faults[3].kernel = FusedKernel::kCrossEntropy;
  faults[3].said = "cross-entropy differs by";
  faults[4].kernels.rotate = run_out_of_memory;
  faults[4].said = "RoPE failed: no memory";
  faults[5].kernels.update_by_adamw = forget_divisor;
  faults[5].kernel = FusedKernel::kAdamW;
  faults[5].said = "AdamW differs by";
  for (const Fault& fault : faults) {
    CAPTURE(fault.said);
    const PaperKernels broken(&fault.kernels);
    const std::vector<std::string> notes = check_device_kernels(paper_device());
    REQUIRE(notes.size() == 1);
    CAPTURE(notes.front());
    CHECK(notes.front().find(fault.said) != std::string::npos);
    CHECK(notes.front().find('\n') == std::string::npos);
    for (const FusedKernel kernel : kFusedKernels) {
      CHECK(has(kernel) == (kernel != fault.kernel));
    }
  }
}

TEST_CASE("CUDA kernels that cannot be launched are turned off", "[paper]") {
  if (compiled_cuda_kernels() == nullptr || at::globalContext().hasCUDA()) {
    SKIP("needs a build with CUDA kernels on a machine without a GPU");
  }
  const PaperKernels all(compiled_cuda_kernels());
  const std::vector<std::string> notes = check_device_kernels(paper_device());
  REQUIRE(notes.size() == kFusedKernels.size());
  for (std::size_t i = 0; i < notes.size(); ++i) {
    CAPTURE(notes[i]);
    CHECK(notes[i].find("could not be launched") != std::string::npos);
    CHECK_FALSE(has(kFusedKernels[i]));
  }
}

TEST_CASE("a fused norm computes the gradients that are needed, for each use of its results",
          "[paper]") {
  const PaperKernels all(&paper_kernels());
  const at::Tensor one = at::randn({2, 20, 16}), other = at::randn({2, 20, 16});
  const at::Tensor scale = at::randn({16});
  const auto on = [&](at::Device device, bool trained, bool use_sum, bool use_norm) {
    const auto leaf = [&](const at::Tensor& value, bool needed) {
      return value.to(value.options().device(device), /*non_blocking=*/false, /*copy=*/true)
          .requires_grad_(needed);
    };
    const at::Tensor x = leaf(one, true), update = leaf(other, true);
    const at::Tensor weight = leaf(scale, trained);
    const NormedSum both = fused_add_rms_norm(x, update, weight, 1e-5);
    at::Tensor total = at::zeros({}, x.options().requires_grad(false));
    if (use_sum) {
      total = total + both.sum.square().sum();
    }
    if (use_norm) {
      total = total + both.normal.square().sum();
    }
    std::vector<at::Tensor> inputs = {x, update};
    if (trained && use_norm) {
      inputs.push_back(weight);
    }
    std::vector<at::Tensor> flat;
    for (const at::Tensor& gradient : torch::autograd::grad({total}, inputs)) {
      flat.push_back(gradient.cpu().flatten());
    }
    return at::cat(flat);
  };
  const bool trained = GENERATE(false, true), use_sum = GENERATE(false, true);
  const bool use_norm = use_sum ? GENERATE(false, true) : true;
  CAPTURE(trained, use_sum, use_norm);
  reset_paper_counts();
  const at::Tensor there = on(paper_device(), trained, use_sum, use_norm);
  CHECK(launches_of("regroup::rms_norm_gradient") == (use_norm ? 1 : 0));
  CHECK(relative_error(there, on(at::kCPU, trained, use_sum, use_norm).to(at::kDouble)) < 1e-5);
}

TEST_CASE("fused kernels refuse tensors of another device", "[paper]") {
  const PaperKernels all(&paper_kernels());
  const at::Tensor x = at::randn({2, 3, 4, 16}).to(paper_device()), here = at::randn({4, 8});
  CHECK_FALSE(can_fuse_rms_norm(x, at::randn({16})));
  CHECK_FALSE(can_fuse_rotation(x, {here, here, false}));
  CHECK_FALSE(can_fuse_gated_activation(Activation::kSilu, x, x.cpu()));
  const at::Tensor logits = here.to(paper_device()), loss = at::zeros({}).to(paper_device());
  CHECK_THROWS(add_fused_cross_entropy(loss, logits, at::randint(8, {4}), 1.0, true));
}

TEST_CASE("a loss by the fused kernel is that of the operators", "[paper]") {
  const at::Tensor hidden = at::randn({50, 8}), head = at::randn({37, 8});
  const at::Tensor targets = at::randint(37, {50}).to(paper_device());
  const auto compute = [&] {
    const at::Tensor x = hidden.to(paper_device()).requires_grad_();
    const at::Tensor w = head.to(paper_device()).requires_grad_();
    const at::Tensor loss = next_token_loss({x, w}, targets, 16);  // several chunks
    const auto gradients = torch::autograd::grad({loss}, {x, w});
    return at::cat({loss.view({1}), gradients[0].flatten(), gradients[1].flatten()}).cpu();
  };
  const at::Tensor separate = compute();
  const PaperKernels all(&paper_kernels());
  reset_paper_counts();
  CHECK(relative_error(compute(), separate.to(at::kDouble)) < 1e-6);
  CHECK(launches_of("regroup::cross_entropy") == 4);
}

}  // namespace regroup

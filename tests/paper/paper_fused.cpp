#include "tests/paper/paper_fused.h"

#include "tests/paper/paper_state.h"
#include "tests/uptrain/ops/host_launcher.h"

namespace regroup {
namespace {

std::int64_t size_of(kernels::NumberType type) {
  return type == kernels::NumberType::kFloat ? 4 : 2;
}

// Counts a kernel that reads and writes so many numbers of a type.
void count(const char* name, kernels::NumberType type, std::int64_t numbers) {
  PaperState::get().launch(name, numbers * size_of(type));
}

const char* rotate(const kernels::RotationCall& call, void* /*stream*/) {
  count("regroup::rotation", call.type,
        2 * call.length * (call.batch * call.heads * call.width + call.half));
  return kernels::rotate(call, OnHost());
}

const char* activate_gated(const kernels::GatedCall& call, void* /*stream*/) {
  count("regroup::gated_activation", call.type, 3 * call.count);
  return kernels::activate_gated(call, OnHost());
}

const char* differentiate_gated(const kernels::GatedGradientCall& call, void* /*stream*/) {
  count("regroup::gated_activation_gradient", call.forward.type, 5 * call.forward.count);
  return kernels::differentiate_gated(call, OnHost());
}

const char* normalise(const kernels::NormCall& call, void* /*stream*/) {
  count("regroup::rms_norm", call.type,
        (call.update == nullptr ? 2 : 4) * call.rows * call.width + call.width);
  return kernels::normalise(call, OnHost());
}

const char* differentiate_norm(const kernels::NormGradientCall& call, void* /*stream*/) {
  count("regroup::rms_norm_gradient", call.type,
        (call.outer_sum == nullptr ? 3 : 4) * call.rows * call.width + call.width);
  return kernels::differentiate_norm(call, OnHost());
}

const char* take_cross_entropy(const kernels::CrossEntropyCall& call, void* /*stream*/) {
  count("regroup::cross_entropy", call.type, (call.with_gradient ? 2 : 1) * call.rows * call.width);
  return kernels::take_cross_entropy(call, OnHost());
}

const char* update_by_adamw(const kernels::AdamWCall& call, void* /*stream*/) {
  const std::int64_t each = size_of(call.gradient_type) + 4 * size_of(call.moment_type) + 8;
  PaperState::get().launch("regroup::adamw", call.count * (call.copy == nullptr ? each : each + 2));
  return kernels::update_by_adamw(call, OnHost());
}

constexpr DeviceKernels kKernels = {rotate,         activate_gated,     differentiate_gated,
                                    normalise,      differentiate_norm, take_cross_entropy,
                                    update_by_adamw};

}  // namespace

const DeviceKernels& paper_kernels() { return kKernels; }

void set_paper_kernels(bool fused) {
  set_device_kernels(paper_device().type(), fused ? &kKernels : nullptr);
}

}  // namespace regroup

#include "uptrain/trainer/state_saver.h"

#include <chrono>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "formats/base/error.h"

namespace regroup {

void StateSaver::start(const TrainingProgress& progress,
                       std::span<const Parameters::Entry> tensors) {
  step_ = progress.step;
  if (in_background_) {
    copy(tensors);
    writing_ = std::async(std::launch::async, [this, progress] { save_(progress, copies_); });
  } else {
    writing_ = std::async(std::launch::deferred, [&] { save_(progress, tensors); });
    writing_.wait();
  }
}

void StateSaver::copy(std::span<const Parameters::Entry> tensors) {
  const at::NoGradGuard no_gradients;
  if (copies_.empty()) {
    for (const Parameters::Entry& entry : tensors) {
      copies_.push_back(
          {entry.name, at::empty_like(entry.value, entry.value.options().device(at::kCPU),
                                      at::MemoryFormat::Contiguous)});
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    copies_[i].value.copy_(tensors[i].value);
  }
}

std::optional<StateSaver::Outcome> StateSaver::outcome() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return std::nullopt;
  }
  return wait();
}

std::optional<StateSaver::Outcome> StateSaver::wait() {
  if (!writing_.valid()) {
    return std::nullopt;
  }
  try {
    writing_.get();
    return Outcome{step_, ""};
  } catch (const Error& fault) {
    return Outcome{step_, fault.what()};
  }
}

}  // namespace regroup

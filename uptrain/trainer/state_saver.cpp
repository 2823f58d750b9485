#include "uptrain/trainer/state_saver.h"

#include <chrono>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "formats/base/error.h"

namespace regroup {

void StateSaver::start(const TrainingProgress& progress, std::span<const StateTensor> tensors,
                       const std::vector<bool>& transient) {
  step_ = progress.step;
  if (in_background_) {
    copy(tensors, transient);
    writing_ = std::async(std::launch::async, [this, progress, transient] {
      const auto release = [&] {
        for (std::size_t i = 0; i < transient.size(); ++i) {
          if (transient[i]) {
            copies_[i].value.reset();
          }
        }
      };
      try {
        save_(progress, copies_);
      } catch (...) {
        release();
        throw;
      }
      release();
    });
  } else {
    writing_ = std::async(std::launch::deferred, [&] { save_(progress, tensors); });
    writing_.wait();
  }
}

void StateSaver::copy(std::span<const StateTensor> tensors, const std::vector<bool>& transient) {
  const at::NoGradGuard no_gradients;
  copies_.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor value = tensors[i].read();
    StateTensor& copy = copies_[i];
    copy.name = tensors[i].name;
    if (!transient.empty() && transient[i]) {
      copy.value = value;
      continue;
    }
    if (!copy.value.defined()) {
      copy.value =
          at::empty_like(value, value.options().device(at::kCPU), at::MemoryFormat::Contiguous);
    }
    copy.value.copy_(value);
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

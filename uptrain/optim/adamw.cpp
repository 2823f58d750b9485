#include "uptrain/optim/adamw.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "uptrain/ops/fused_adamw.h"

namespace regroup {
namespace {

// Whole fp32 masters on a device that has the kernel.
bool has_fused_adamw(const MasterWeights& masters) {
  const at::TensorOptions options = masters.options(0);
  return masters.mode() == MemoryMode::kFull && options.dtype() == at::kFloat &&
         can_fuse_adamw(options.device());
}

}  // namespace

AdamW::AdamW(MasterWeights masters, const AdamWSettings& settings)
    : masters_(std::move(masters)), settings_(settings), fused_(has_fused_adamw(masters_)) {
  std::vector<std::size_t> decayed;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    (masters_.sizes(i).size() >= 2 ? decayed : kept).push_back(i);
    const auto options = masters_.options(i);
    const bool narrow = settings.moments == Precision::kBf16;
    for (auto* moments : {&first_moments_, &second_moments_}) {
      moments->push_back(at::zeros_like(masters_.tensors()[i].value,
                                        narrow ? options.dtype(at::kBFloat16) : options));
    }
  }
  add_batches(decayed, settings.weight_decay);
  add_batches(kept, 0.0);
  count_ = at::zeros({}, masters_.options(0).dtype(at::kFloat));
}

// What is stored in a narrower type is widened for the update, one tensor at a time.
void AdamW::add_batches(const std::vector<std::size_t>& members, double weight_decay) {
  if (settings_.moments == Precision::kBf16 || masters_.mode() != MemoryMode::kFull) {
    for (const std::size_t member : members) {
      batches_.push_back({{member}, weight_decay});
    }
  } else if (!members.empty()) {
    batches_.push_back({members, weight_decay});
  }
}

AdamW::Tensors AdamW::pick(const std::vector<std::size_t>& members,
                           const std::vector<at::Tensor>& gradients) const {
  Tensors picked;
  for (const std::size_t member : members) {
    const at::Tensor weight = masters_.read(member);
    picked.weights.push_back(weight);
    // Makes copies of what is narrower than the weight, else takes the tensors themselves. The
    // CPU's kernel ignores strides, and gradients may be views, such as the columns of a larger
    // tensor.
    picked.gradients.push_back(gradients[member].to(weight.scalar_type()).contiguous());
    picked.first.push_back(first_moments_[member].to(weight.scalar_type()));
    picked.second.push_back(second_moments_[member].to(weight.scalar_type()));
  }
  return picked;
}

void AdamW::step(const std::vector<at::Tensor>& gradients, double learning_rate,
                 const at::Tensor& gradient_divisor, const at::Tensor& skip) {
  const at::NoGradGuard no_gradients;
  count_.add_(1.0);
  if (fused_) {
    step_fused(gradients, learning_rate, gradient_divisor, skip);
    count_.sub_(skip);
    return;
  }
  for (const Batch& batch : batches_) {
    Tensors tensors = pick(batch.members, gradients);
    const std::vector<at::Tensor> counts(batch.members.size(), count_);
    at::_fused_adamw_(tensors.weights, tensors.gradients, tensors.first, tensors.second,
                      /*max_exp_avg_sqs=*/{}, counts, learning_rate, settings_.beta1,
                      settings_.beta2, batch.weight_decay, settings_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, gradient_divisor, skip);
    for (std::size_t i = 0; i < batch.members.size(); ++i) {
      first_moments_[batch.members[i]].copy_(tensors.first[i]);
      second_moments_[batch.members[i]].copy_(tensors.second[i]);
    }
    tensors.gradients.clear();  // before masters are split, which takes memory
    tensors.first.clear();
    tensors.second.clear();
    for (std::size_t i = 0; i < batch.members.size(); ++i) {
      masters_.write(batch.members[i], tensors.weights[i]);
    }
  }
  count_.sub_(skip);
}

void AdamW::step_fused(const std::vector<at::Tensor>& gradients, double learning_rate,
                       const at::Tensor& gradient_divisor, const at::Tensor& skip) {
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const double decay = masters_.sizes(i).size() >= 2 ? settings_.weight_decay : 0.0;
    update_by_fused_adamw({.master = masters_.tensors()[i].value,
                           .copy = masters_.copy(i),
                           .first = first_moments_[i],
                           .second = second_moments_[i],
                           .gradient = gradients[i]},
                          {.rate = learning_rate,
                           .decay = learning_rate * decay,
                           .beta1 = settings_.beta1,
                           .beta2 = settings_.beta2,
                           .epsilon = settings_.epsilon},
                          {gradient_divisor, skip, count_});
  }
}

std::vector<Parameters::Entry> AdamW::state() const {
  std::vector<Parameters::Entry> tensors;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    tensors.push_back({"first_moment." + masters_.name(i), first_moments_[i]});
    tensors.push_back({"second_moment." + masters_.name(i), second_moments_[i]});
  }
  tensors.push_back({"optimizer.count", count_});
  return tensors;
}

}  // namespace regroup

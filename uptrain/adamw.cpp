#include "uptrain/adamw.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace regroup {

AdamW::AdamW(const Parameters& parameters, const AdamWSettings& settings)
    : parameters_(parameters.tensors()), settings_(settings) {
  Group decayed{{}, settings.weight_decay};
  Group kept{{}, 0.0};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    (parameters_[i].dim() >= 2 ? decayed : kept).members.push_back(i);
    names_.push_back(parameters.entries()[i].name);
    first_moments_.push_back(at::zeros_like(parameters_[i]));
    second_moments_.push_back(at::zeros_like(parameters_[i]));
  }
  for (Group& group : {std::ref(decayed), std::ref(kept)}) {
    if (!group.members.empty()) {
      groups_.push_back(std::move(group));
    }
  }
  count_ = at::zeros({}, parameters_.front().options().dtype(at::kFloat));
}

std::vector<at::Tensor> AdamW::pick(const Group& group, const std::vector<at::Tensor>& from) const {
  std::vector<at::Tensor> picked;
  picked.reserve(group.members.size());
  for (const std::size_t member : group.members) {
    picked.push_back(from[member]);
  }
  return picked;
}

void AdamW::step(const std::vector<at::Tensor>& gradients, double learning_rate,
                 const at::Tensor& gradient_divisor, const at::Tensor& skip) {
  const at::NoGradGuard no_gradients;
  count_.add_(1.0);
  for (const Group& group : groups_) {
    const std::vector<at::Tensor> counts(group.members.size(), count_);
    at::_fused_adamw_(pick(group, parameters_), pick(group, gradients), pick(group, first_moments_),
                      pick(group, second_moments_),
                      /*max_exp_avg_sqs=*/{}, counts, learning_rate, settings_.beta1,
                      settings_.beta2, group.weight_decay, settings_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, gradient_divisor, skip);
  }
  count_.sub_(skip);
}

std::vector<Parameters::Entry> AdamW::state() const {
  std::vector<Parameters::Entry> tensors;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    tensors.push_back({"first_moment." + names_[i], first_moments_[i]});
    tensors.push_back({"second_moment." + names_[i], second_moments_[i]});
  }
  tensors.push_back({"optimizer.count", count_});
  return tensors;
}

}  // namespace regroup

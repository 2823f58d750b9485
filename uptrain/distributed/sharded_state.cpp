#include "uptrain/distributed/sharded_state.h"

#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "formats/json/json.h"

namespace regroup {
namespace {

// Names, shapes and types as a text for other ranks.
std::string description_of(const std::vector<StateTensor>& tensors) {
  Json lines = Json::array();
  for (const StateTensor& tensor : tensors) {
    lines.push_back({tensor.name, tensor.value.sizes().vec(), static_cast<int>(tensor.type())});
  }
  return lines.dump();
}

}  // namespace

ShardedState::ShardedState(ProcessGroup* group, std::vector<StateTensor> own) : group_(group) {
  const std::string mine = description_of(own);
  const std::vector<std::string> all =
      group_ != nullptr ? group_->exchange(mine) : std::vector<std::string>{mine};
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const Json& line : Json::parse(all[rank])) {
      const auto [place, fresh] = places.emplace(line[0], shared_.size());
      if (fresh) {
        shared_.push_back({line[0],
                           line[1],
                           static_cast<at::ScalarType>(line[2].get<int>()),
                           static_cast<int>(rank),
                           false,
                           {}});
      } else {
        shared_[place->second].several = true;
      }
    }
  }
  for (StateTensor& tensor : own) {
    shared_[places.at(tensor.name)].own = std::move(tensor);
  }
}

at::Tensor ShardedState::sendable(const StateTensor& tensor) const {
  return tensor.read().detach().to(group_->device()).contiguous();
}

at::Tensor ShardedState::scratch(const Shared& shared) const {
  return at::empty(shared.shape, at::TensorOptions(shared.type).device(group_->device()));
}

std::vector<StateTensor> ShardedState::part() const {
  std::vector<StateTensor> tensors;
  for (const Shared& shared : shared_) {
    if (group_ == nullptr || shared.owner == group_->rank()) {
      tensors.push_back(shared.own);
    }
  }
  return tensors;
}

std::vector<StateTensor> ShardedState::own() const {
  std::vector<StateTensor> tensors;
  for (const Shared& shared : shared_) {
    if (shared.own.value.defined()) {
      tensors.push_back(shared.own);
    }
  }
  return tensors;
}

std::vector<StateTensor> ShardedState::gather() const {
  const at::NoGradGuard no_gradients;
  std::vector<StateTensor> all;
  for (const Shared& shared : shared_) {
    StateTensor tensor = shared.own;
    if (shared.owner != 0) {
      const bool here = shared.owner == group_->rank();
      const at::Tensor value = here ? sendable(tensor) : scratch(shared);
      group_->broadcast(value, shared.owner).wait();
      tensor = {shared.name, group_->first() ? value.to(at::kCPU) : at::Tensor()};
    }
    if (group_ == nullptr || group_->first()) {
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

std::vector<bool> ShardedState::gathered_copies() const {
  std::vector<bool> copies;
  for (const Shared& shared : shared_) {
    copies.push_back(shared.owner != 0);
  }
  return copies;
}

std::vector<StateTensor> ShardedState::places() const {
  std::vector<StateTensor> all;
  for (const Shared& shared : shared_) {
    all.push_back(shared.own.value.defined()
                      ? shared.own
                      : StateTensor{shared.name, at::empty(shared.shape, shared.type)});
  }
  return all;
}

void ShardedState::scatter(const std::vector<StateTensor>& all) const {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    const Shared& shared = shared_[i];
    if (shared.owner == 0 && !shared.several) {
      continue;
    }
    const at::Tensor value = group_->first() ? sendable(all[i]) : scratch(shared);
    group_->broadcast(value, 0).wait();
    if (shared.own.value.defined() && !group_->first()) {
      shared.own.write(value);
    }
  }
}

}  // namespace regroup

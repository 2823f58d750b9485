#include "uptrain/distributed/sharded_state.h"

#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "formats/json/json.h"

namespace regroup {
namespace {

// Names, shapes and types as a text for other ranks.
std::string description_of(const std::vector<Parameters::Entry>& entries) {
  Json lines = Json::array();
  for (const auto& [name, value] : entries) {
    lines.push_back({name, value.sizes().vec(), static_cast<int>(value.scalar_type())});
  }
  return lines.dump();
}

}  // namespace

ShardedState::ShardedState(ProcessGroup* group, std::vector<Parameters::Entry> own)
    : group_(group) {
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
  for (Parameters::Entry& entry : own) {
    shared_[places.at(entry.name)].own = std::move(entry.value);
  }
}

at::Tensor ShardedState::scratch(const Shared& shared) const {
  return at::empty(shared.shape, at::TensorOptions(shared.type).device(group_->device()));
}

std::vector<Parameters::Entry> ShardedState::gather() const {
  const at::NoGradGuard no_gradients;
  std::vector<Parameters::Entry> all;
  for (const Shared& shared : shared_) {
    at::Tensor value = shared.own;
    if (shared.owner != 0) {
      const bool here = shared.owner == group_->rank();
      value = here ? shared.own.detach().contiguous() : scratch(shared);
      group_->broadcast(value, shared.owner).wait();
      value = group_->first() ? value.to(at::kCPU) : at::Tensor();
    }
    if (group_ == nullptr || group_->first()) {
      all.push_back({shared.name, value});
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

std::vector<Parameters::Entry> ShardedState::places() const {
  std::vector<Parameters::Entry> all;
  for (const Shared& shared : shared_) {
    const at::Tensor place =
        shared.own.defined() ? shared.own : at::empty(shared.shape, shared.type);
    all.push_back({shared.name, place});
  }
  return all;
}

void ShardedState::scatter(const std::vector<Parameters::Entry>& all) const {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    const Shared& shared = shared_[i];
    if (shared.owner == 0 && !shared.several) {
      continue;
    }
    const at::Tensor value =
        group_->first() ? all[i].value.detach().to(group_->device()).contiguous() : scratch(shared);
    group_->broadcast(value, 0).wait();
    if (shared.own.defined() && !group_->first()) {
      shared.own.detach().copy_(value);
    }
  }
}

}  // namespace regroup

#include "uptrain/distributed/sharded_weights.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include "formats/families/family.h"
#include "uptrain/distributed/zero_partition.h"

namespace regroup {

std::map<std::string, int> weight_owners(const Parameters& weights,
                                         std::map<std::string, int> given, int ranks) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks)), elements;
  std::vector<std::string> others;
  for (const Parameters::Entry& entry : weights.entries()) {
    if (const auto owner = given.find(entry.name); owner != given.end()) {
      loads[static_cast<std::size_t>(owner->second)] += entry.value.numel();
    } else {
      others.push_back(entry.name);
      elements.push_back(entry.value.numel());
    }
  }
  const std::vector<int> owners = balanced_owners(elements, ranks, std::move(loads));
  for (std::size_t i = 0; i < others.size(); ++i) {
    given.emplace(others[i], owners[i]);
  }
  return given;
}

void release_memory(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
}

void take_memory(const at::Tensor& tensor) {
  const c10::DeviceGuard guard(tensor.device());
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(
      c10::GetAllocator(tensor.device().type())->allocate(storage.nbytes()));
}

Parameters parameters_without_memory(const ModelSpec& spec, at::ScalarType type,
                                     at::Device device) {
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& expected : expected_tensors(spec)) {
    entries.push_back(
        {expected.name, at::empty(expected.shape, at::TensorOptions(type).device(device))});
    release_memory(entries.back().value);
  }
  return Parameters(std::move(entries));
}

std::unique_ptr<ShardedWeights> load_share(ProcessGroup& group, const Parameters& weights,
                                           const ModelSpec& spec, const Checkpoint& checkpoint,
                                           const std::map<std::string, int>& owners) {
  const std::map<std::string, int> all = weight_owners(weights, owners, group.size());
  std::vector<std::string> own;
  for (const auto& [name, owner] : all) {
    if (owner == group.rank()) {
      own.push_back(name);
      take_memory(weights.at(name));
    }
  }
  read_parameters(weights.only(own), spec, checkpoint);
  return std::make_unique<ShardedWeights>(group, spec, weights, all);
}

ShardedWeights::ShardedWeights(ProcessGroup& group, const ModelSpec& spec,
                               const Parameters& weights, const std::map<std::string, int>& owners)
    : group_(group) {
  std::map<std::string, std::size_t> block_of;
  for (const AttentionRole stack : {AttentionRole::kEncoder, AttentionRole::kSelf}) {
    for (const LayerTensors& layer : spec.stack(stack)) {
      for (const std::string& name : tensors_of(layer)) {
        block_of.emplace(name, blocks_.size());
      }
      blocks_.emplace_back();
    }
  }
  for (const Parameters::Entry& entry : weights.entries()) {
    const auto block = block_of.find(entry.name);
    Unit& unit = block != block_of.end() ? blocks_[block->second] : rest_;
    unit.parts.push_back({entry.value.detach(), owners.at(entry.name)});
  }
  for (Unit& unit : blocks_) {
    release(unit);
  }
  release(rest_);
}

void ShardedWeights::begin_pass() {
  start(rest_);
  finish(rest_);
}

void ShardedWeights::bring(std::size_t block, Direction direction) {
  start(blocks_[block]);
  const bool forward = direction == Direction::kForward;
  if (forward && block + 1 < blocks_.size()) {
    start(blocks_[block + 1]);
  } else if (!forward && block > 0) {
    start(blocks_[block - 1]);
  }
  finish(blocks_[block]);
}

// The backward pass begins with the last block, which stays for it.
void ShardedWeights::drop(std::size_t block, Direction /*direction*/, bool again) {
  if (!again || block + 1 < blocks_.size()) {
    release(blocks_[block]);
  }
}

void ShardedWeights::drop_all() {
  for (Unit& unit : blocks_) {
    release(unit);
  }
  release(rest_);
}

void ShardedWeights::start(Unit& unit) {
  if (unit.there) {
    return;
  }
  unit.there = true;
  const at::NoGradGuard no_gradients;
  for (const Part& part : unit.parts) {
    if (part.owner != group_.rank()) {
      take_memory(part.tensor);
    }
    unit.arriving.push_back(group_.broadcast(part.tensor, part.owner));
  }
}

void ShardedWeights::finish(Unit& unit) {
  for (const Pending& pending : std::exchange(unit.arriving, {})) {
    pending.wait();
  }
}

void ShardedWeights::release(Unit& unit) {
  finish(unit);
  unit.there = false;
  for (const Part& part : unit.parts) {
    if (part.owner != group_.rank()) {
      release_memory(part.tensor);
    }
  }
}

}  // namespace regroup

#include "uptrain/distributed/sharded_weights.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/accumulate.h>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/families/family.h"

namespace regroup {

std::vector<int> balanced_owners(const std::vector<std::int64_t>& elements, int ranks,
                                 std::vector<std::int64_t> loads) {
  std::vector<std::size_t> order(elements.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return elements[i]; });
  loads.resize(static_cast<std::size_t>(ranks));
  std::vector<int> owners(elements.size());
  for (const std::size_t tensor : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    owners[tensor] = static_cast<int>(least - loads.begin());
    *least += elements[tensor];
  }
  return owners;
}

ZeroPartition::ZeroPartition(ProcessGroup& group, const Parameters& trained,
                             std::int64_t bucket_elements)
    : group_(group) {
  std::vector<std::int64_t> elements;
  for (const Parameters::Entry& entry : trained.entries()) {
    names_.push_back(entry.name);
    shapes_.push_back(entry.value.sizes().vec());
    elements.push_back(entry.value.numel());
  }
  if (names_.size() < static_cast<std::size_t>(sharing().size())) {
    throw_usage("{} tensors are trained by {} ranks: allowed are no more ranks than tensors",
                names_.size(), sharing().size());
  }
  owners_ = balanced_owners(elements, sharing().size());
  fill_buckets(elements, bucket_elements);
}

void ZeroPartition::fill_buckets(const std::vector<std::int64_t>& elements,
                                 std::int64_t bucket_elements) {
  for (int owner = 0; owner < sharing().size(); ++owner) {
    std::int64_t filled = bucket_elements;
    for (std::size_t i = owners_.size(); i-- > 0;) {
      if (owners_[i] == owner) {
        if (filled + elements[i] > bucket_elements) {
          buckets_.push_back({owner, {}});
          filled = 0;
        }
        buckets_.back().members.push_back(i);
        filled += elements[i];
      }
    }
  }
  std::sort(buckets_.begin(), buckets_.end(),
            [](const Bucket& a, const Bucket& b) { return a.members.back() > b.members.back(); });
}

std::vector<std::string> ZeroPartition::own_names() const {
  std::vector<std::string> own;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (owners_[i] == sharing().rank()) {
      own.push_back(names_[i]);
    }
  }
  return own;
}

std::map<std::string, int> ZeroPartition::owners() const {
  std::map<std::string, int> owners;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    owners.emplace(names_[i], owners_[i]);
  }
  return owners;
}

void ZeroPartition::broadcast_weights(const std::vector<at::Tensor>& weights) const {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> flats;
  std::vector<Pending> broadcasts;
  for (const Bucket& bucket : buckets_) {
    flats.push_back(flattened(bucket, weights));
    broadcasts.push_back(sharing().broadcast(flats.back(), bucket.owner));
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    broadcasts[i].in_order();
    if (owns(buckets_[i])) {
      continue;
    }
    const std::vector<at::Tensor> parts = parts_of(buckets_[i], flats[i]);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const at::Tensor weight = weights[buckets_[i].members[part]].detach();
      if (!weight.is_alias_of(parts[part])) {
        weight.copy_(parts[part]);
      }
    }
  }
}

at::Tensor ZeroPartition::flattened(const Bucket& bucket, const std::vector<at::Tensor>& tensors) {
  if (bucket.members.size() == 1) {
    return tensors[bucket.members.front()].detach().contiguous();
  }
  std::vector<at::Tensor> parts;
  for (const std::size_t member : bucket.members) {
    parts.push_back(tensors[member].detach().reshape({-1}));
  }
  return at::cat(parts);
}

std::vector<at::Tensor> ZeroPartition::parts_of(const Bucket& bucket,
                                                const at::Tensor& flat) const {
  std::vector<at::Tensor> parts;
  const at::Tensor line = flat.view({-1});
  std::int64_t begin = 0;
  for (const std::size_t member : bucket.members) {
    const std::int64_t size = c10::multiply_integers(shapes_[member]);
    parts.push_back(line.narrow(0, begin, size).view(shapes_[member]));
    begin += size;
  }
  return parts;
}

GradientReducer::GradientReducer(const ZeroPartition& partition, std::size_t most_in_flight)
    : partition_(partition),
      most_in_flight_(most_in_flight),
      bucket_of_(partition.tensors()),
      gradients_(partition.tensors()) {
  for (const ZeroPartition::Bucket& bucket : partition.buckets()) {
    for (const std::size_t member : bucket.members) {
      bucket_of_[member] = missing_.size();
    }
    missing_.push_back(bucket.members.size());
  }
}

void GradientReducer::add_ready(std::size_t tensor, at::Tensor gradient) {
  gradients_[tensor] = std::move(gradient);
  --missing_[bucket_of_[tensor]];
  while (begun_ < missing_.size() && missing_[begun_] == 0) {
    for (; transfers_.size() >= most_in_flight_; transfers_.pop_front()) {
      end(transfers_.front());
    }
    begin(partition_.buckets()[begun_++]);
  }
  std::erase_if(transfers_, [this](const Transfer& transfer) {
    const bool done = transfer.reduce.is_done();
    if (done) {
      end(transfer);
    }
    return done;
  });
}

std::vector<at::Tensor> GradientReducer::finish() {
  for (; !transfers_.empty(); transfers_.pop_front()) {
    end(transfers_.front());
  }
  std::vector<at::Tensor> own;
  for (at::Tensor& sum : gradients_) {
    if (sum.defined()) {
      own.push_back(std::move(sum));
    }
  }
  return own;
}

void GradientReducer::begin(const ZeroPartition::Bucket& bucket) {
  const at::Tensor flat = ZeroPartition::flattened(bucket, gradients_);
  for (const std::size_t member : bucket.members) {
    gradients_[member].reset();  // so that not all gradients exist twice
  }
  transfers_.push_back({bucket, flat, partition_.sharing().reduce(flat, bucket.owner)});
}

void GradientReducer::end(const Transfer& transfer) {
  transfer.reduce.in_order();
  if (partition_.owns(transfer.bucket)) {
    const std::vector<at::Tensor> sums = partition_.parts_of(transfer.bucket, transfer.flat);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      gradients_[transfer.bucket.members[i]] = sums[i];
    }
  }
}

namespace {

// The rank that owns each tensor of a model, given for some.
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

// Gives up the memory of a tensor, which keeps its shape.
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

// Names, shapes and types as a text for other ranks.
std::string description_of(const std::vector<StateTensor>& tensors) {
  Json lines = Json::array();
  for (const StateTensor& tensor : tensors) {
    lines.push_back({tensor.name, tensor.value.sizes().vec(), static_cast<int>(tensor.type())});
  }
  return lines.dump();
}

}  // namespace

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
  drop_all();
}

void ShardedWeights::begin_pass() {
  start(rest_);
  finish(rest_);
}

void ShardedWeights::bring(std::size_t block, Direction direction) {
  start(blocks_[block]);
  const std::size_t next = direction == Direction::kForward ? block + 1 : block - 1;
  if (next < blocks_.size()) {  // block - 1 wraps below 0
    start(blocks_[next]);
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
    pending.in_order();
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

ShardedState::ShardedState(ProcessGroup* group, std::vector<StateTensor> own)
    : group_(group), own_(std::move(own)) {
  const std::string mine = description_of(own_);
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
  for (const StateTensor& tensor : own_) {
    shared_[places.at(tensor.name)].own = tensor;
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

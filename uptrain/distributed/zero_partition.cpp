#include "uptrain/distributed/zero_partition.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <c10/util/accumulate.h>

#include "formats/base/error.h"

namespace regroup {

std::vector<int> balanced_owners(const std::vector<std::int64_t>& elements, int ranks,
                                 std::vector<std::int64_t> loads) {
  std::vector<std::size_t> order(elements.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return elements[a] > elements[b]; });
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
    broadcasts[i].wait();
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

}  // namespace regroup

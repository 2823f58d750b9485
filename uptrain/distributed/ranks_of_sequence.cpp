#include "uptrain/distributed/ranks_of_sequence.h"

#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace regroup {
namespace {

// Keys and values side by side, [t, B, n, 2d]: parts follow each other in memory.
struct Exchanged {
  at::Tensor both;

  Exchanged(std::int64_t positions, const at::Tensor& like, at::ScalarType type)
      : both(at::empty({positions, like.size(0), like.size(1), 2 * like.size(3)},
                       like.options().dtype(type))) {}

  at::Tensor at(std::int64_t first, std::int64_t count) const {
    return both.narrow(0, first, count);
  }

  // The same as heads, [B, n, count, d].
  KeysAndValues heads(std::int64_t first, std::int64_t count) const {
    const at::Tensor turned = at(first, count).permute({1, 2, 0, 3});
    const std::int64_t width = turned.size(-1) / 2;
    return {turned.narrow(-1, 0, width), turned.narrow(-1, width, width)};
  }

  void write(std::int64_t first, const KeysAndValues& heads_there) const {
    const KeysAndValues to = heads(first, heads_there.k.size(2));
    to.k.copy_(heads_there.k);
    to.v.copy_(heads_there.v);
  }
};

}  // namespace

KeysAndValues RanksOfSequence::joined(const KeysAndValues& own) const {
  const std::int64_t length = own.k.size(2);
  const std::int64_t positions = (number() + 1) * length;
  const Exchanged all(positions, own.k, own.k.scalar_type());
  all.write(number() * length, own);
  std::vector<Pending> arriving;
  for (std::int64_t from = 0; from <= number(); ++from) {
    arriving.push_back(ranks_.broadcast(all.at(from * length, length), static_cast<int>(from)));
  }
  for (const Pending& pending : arriving) {
    pending.wait();
  }
  at::Tensor later;  // what this rank has no use for
  for (std::int64_t from = number() + 1; from < parts(); ++from) {
    later = later.defined() ? later : at::empty_like(all.at(0, length));
    ranks_.broadcast(later, static_cast<int>(from)).wait();
  }
  return all.heads(0, positions);
}

KeysAndValues RanksOfSequence::own_sums(const KeysAndValues& all) const {
  const std::int64_t positions = all.k.size(2);
  const std::int64_t length = positions / (number() + 1);
  const Exchanged sums(parts() * length, all.k,
                       all.k.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  sums.write(0, all);
  sums.at(positions, parts() * length - positions).zero_();
  std::vector<Pending> arriving;
  for (std::int64_t to = 0; to < parts(); ++to) {
    arriving.push_back(ranks_.reduce(sums.at(to * length, length), static_cast<int>(to)));
  }
  for (const Pending& pending : arriving) {
    pending.wait();
  }
  return sums.heads(number() * length, length);
}

std::optional<RanksOfSequence> ranks_of_sequence(ProcessGroup* group) {
  return group != nullptr && group->sequences() != nullptr
             ? std::optional<RanksOfSequence>(std::in_place, *group->sequences())
             : std::nullopt;
}

}  // namespace regroup

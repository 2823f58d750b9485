// Sequences that consecutive ranks compute together, each a part of them.
//
// Earlier keys and values are gathered whole. With G kv heads of H query heads, a gather by N ranks
// moves (N - 1)·2G/N heads of each token, and Ulysses' all-to-all (Jacobs et al. 2023,
// https://arxiv.org/abs/2309.14509) (N - 1)·(2H + 2G)/N² of them: less only for N > 1 + H/G, and
// then with N kv heads at least.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/process_group.h"
#include "uptrain/ops/sequence_part.h"

namespace regroup {

class RanksOfSequence final : public SequencePart {
 public:
  /// `ranks`: those of the same sequences, in the order of their parts.
  explicit RanksOfSequence(const ProcessGroup& ranks) : ranks_(ranks) {}

  std::int64_t number() const override { return ranks_.rank(); }
  std::int64_t parts() const override { return ranks_.size(); }
  KeysAndValues joined(const KeysAndValues& own) const override;
  KeysAndValues own_sums(const KeysAndValues& all) const override;
  at::Tensor sum(const at::Tensor& own) const override { return ranks_.sum(own); }

 private:
  const ProcessGroup& ranks_;
};

/// Those of this rank's sequences, if `group` is divided so.
std::optional<RanksOfSequence> ranks_of_sequence(ProcessGroup* group);

}  // namespace regroup

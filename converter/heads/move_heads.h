// Heads from one stored tensor to another: copied, or averaged within their groups (mean pooling,
// Ainslie et al. 2023, "GQA", section 2.1), with their features in another order or layout where
// the result wants that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converter/heads/attention_heads.h"
#include "converter/heads/heads.h"
#include "formats/dtype/dtype.h"

namespace regroup {

struct HeadMove {
  std::string source;  ///< the tensor they come from
  HeadBlocks from;
  HeadBlocks to;
  std::vector<std::vector<std::int64_t>> mean_of;  ///< per head of `to`: heads of `from`
  std::vector<std::int64_t> row_order = {};  ///< row r comes from row row_order[r]; empty: from r
  /// Where the heads are computed first: `from` lies in this tensor, of doubles, in place of
  /// `source`, which is one of those it is computed from.
  std::optional<PooledTensor> pooled = std::nullopt;

  /// Whether any head is the mean of several.
  bool pools() const;
};

/// A move of every head to the head of the same number.
HeadMove copy_of_heads(std::string source, HeadBlocks from, HeadBlocks to);

/// Carries out a move on elements of those types: where they differ or heads are averaged ones that
/// can be decoded and encoded (formats/dtype/numbers.h), else any; of block types whole rows. A
/// single head of the same type keeps its bits; means are summed and divided in double and rounded
/// once. Returns whether every mean is finite, and every number that only changes its type still
/// what it was or rounded, not made infinite. Types of blocks hold no other numbers: there the rest
/// of the target is left as it was.
bool move_heads(const HeadMove& move, DType from_type, std::span<const std::byte> source,
                DType to_type, std::span<std::byte> target);

}  // namespace regroup

// Moves heads from one stored tensor to another: copies them, or averages them within groups (mean
// pooling, Ainslie et al. 2023, "GQA", section 2.1); may also permute features and change the
// layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converter/heads/heads.h"
#include "formats/tensors/dtype.h"

namespace regroup {

struct HeadMove {
  std::string source;  ///< the tensor they come from
  HeadBlocks from;
  HeadBlocks to;
  std::vector<std::vector<std::int64_t>> mean_of;  ///< per head of `to`: heads of `from`
  std::vector<std::int64_t> row_order = {};  ///< row r comes from row row_order[r]; empty: from r
  /// For computed heads: `from` refers to this tensor of doubles instead of `source`, which is one
  /// of the tensors it is computed from.
  std::optional<PooledTensor> pooled = std::nullopt;

  /// Whether any head is the mean of several.
  bool pools() const;
};

/// A move of every head to the head of the same number.
HeadMove copy_of_heads(std::string source, HeadBlocks from, HeadBlocks to);

/// Executes a move from elements of `from_type` to elements of `to_type`. If the types differ or
/// heads are averaged, both must be decodable and encodable (formats/tensors/dtype.h), otherwise
/// any type is allowed; block types are moved in whole rows. A single head of the same type keeps
/// its bits; means are summed and divided in double and rounded once. Returns whether every mean is
/// finite and no conversion of a number overflowed. Block types cannot hold non-finite numbers: on
/// failure the rest of the target is left unchanged.
bool move_heads(const HeadMove& move, DType from_type, std::span<const std::byte> source,
                DType to_type, std::span<std::byte> target);

}  // namespace regroup

// The head of each group that stands for it best.
#pragma once

#include <cstdint>
#include <vector>

#include "converter/pooling/attention_heads.h"
#include "converter/pooling/input_moments.h"

namespace regroup {

/// For each of `groups` blocks of neighbours the kv head whose keys and values are closest to those
/// of the others: the least sum of expected squared distances, keys and values relative to their
/// mean power. Of the inputs' covariance only the diagonal counts.
std::vector<std::int64_t> select_heads(const AttentionHeads& heads, std::int64_t groups,
                                       const InputMoments& inputs);

}  // namespace regroup

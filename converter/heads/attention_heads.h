// All heads of one attention layer in double: input and output of pooling methods.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The linear maps of an attention.
enum class AttentionPart { kQuery, kKey, kValue, kOutput };

/// One stored tensor of a pooled attention.
struct PooledTensor {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  AttentionPart part = AttentionPart::kKey;
  bool bias = false;
};

/// A linear map, row-major.
struct DenseLinear {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::vector<double> weight;  ///< [outputs, inputs]
  std::vector<double> bias;    ///< [outputs], or empty where there is none
};

/// H query heads and G kv heads of d features each, in order, independent of the stored packing.
struct AttentionHeads {
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  DenseLinear q;  ///< [H·d, D]
  DenseLinear k;  ///< [G·d, D], of the encoder's D in cross-attention
  DenseLinear v;  ///< [G·d, D]
  DenseLinear o;  ///< [D, H·d]

  const DenseLinear& part(AttentionPart part) const;

  /// The values of that part: its weight, row-major, or its bias.
  const std::vector<double>& values(const PooledTensor& tensor) const;
};

/// Reads the attention of one layer. Throws kBadInput for tensors that are not numeric.
AttentionHeads read_attention_heads(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                    const Checkpoint& checkpoint);

/// The same attention with permuted kv heads and their query heads: place p holds kv head order[p].
AttentionHeads in_order(const AttentionHeads& heads, const std::vector<std::int64_t>& order);

/// Whether every number is finite.
bool all_finite(const AttentionHeads& heads);

/// The name, from `names`, of the first tensor that holds NaN or infinity; empty if none does.
std::string nonfinite_tensor(const AttentionHeads& heads, const AttentionLayout& names);

}  // namespace regroup

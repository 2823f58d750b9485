// Heads of an attention and their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/dtype.h"

namespace regroup {

// A view of a stored projection as heads [H, d, D].

/// `count` numbers: 0, `step`, 2·`step`, ….
std::vector<std::int64_t> evenly_spaced(std::int64_t count, std::int64_t step = 1);

/// `all` in another order: place i holds element order[i].
template <typename T>
std::vector<T> taken(const std::vector<T>& all, std::span<const std::int64_t> order) {
  std::vector<T> result;
  for (const std::int64_t i : order) {
    result.push_back(all[static_cast<std::size_t>(i)]);
  }
  return result;
}

/// Whether each of the first `count` numbers is in `numbers` once.
bool is_permutation_of(std::int64_t count, std::vector<std::int64_t> numbers);

/// Offsets and strides of heads in one stored tensor, in elements: the weight of feature r of head
/// h for input c is element first[h] + r·row_stride + c·column_stride. A whole tensor is one head
/// of all its rows.
struct HeadBlocks {
  std::vector<std::int64_t> first;
  std::int64_t rows = 0;     ///< d
  std::int64_t columns = 1;  ///< D, or 1 in a bias
  std::int64_t row_stride = 1;
  std::int64_t column_stride = 1;

  std::int64_t heads() const { return static_cast<std::int64_t>(first.size()); }
  /// Whether a head's elements are contiguous, row-major.
  bool dense() const { return column_stride == 1 && row_stride == columns; }
};

/// Blocks of heads that start at the given output features of a tensor of that shape: a weight
/// [out, in], or [in, out] if `input_major`, or a bias [out].
HeadBlocks head_blocks(const Shape& shape, bool input_major,
                       std::span<const std::int64_t> first_features, std::int64_t head_dim);

/// For each new head the old ones it is made from: `before` heads in `groups` blocks of neighbours,
/// each block stored `after` / `groups` times. Of two consecutive counts one divides the other.
std::vector<std::vector<std::int64_t>> heads_of_groups(std::int64_t before, std::int64_t groups,
                                                       std::int64_t after);

// The order of the source's heads in a result, so that heads of a group are neighbours.

/// Per role and layer a permutation of the kv heads, with which their query heads move.
class HeadOrder {
 public:
  /// `kv_heads`: the source head at each place.
  void set(AttentionRole role, std::size_t layer, std::vector<std::int64_t> kv_heads);

  /// Whether all heads keep their places.
  bool empty() const { return orders_.empty(); }
  bool moves(AttentionRole role, std::size_t layer) const {
    return orders_.contains({role, layer});
  }

  /// The orders of all layers whose heads move.
  using Place = std::pair<AttentionRole, std::size_t>;
  const std::map<Place, std::vector<std::int64_t>>& orders() const { return orders_; }

  /// The source head at each of `count` places: kv heads, or query heads with equally many per kv
  /// head.
  std::vector<std::int64_t> heads(AttentionRole role, std::size_t layer, std::int64_t count) const;

 private:
  std::map<Place, std::vector<std::int64_t>> orders_;
};

/// The layers, including this one, whose heads must move together: those that share a table of
/// relative biases with one column per query head, as in each of T5's stacks. Otherwise only this
/// layer.
std::vector<std::size_t> layers_in_step(const ModelSpec& source, AttentionRole role,
                                        std::size_t layer);

/// Throws kUsage unless every order is a permutation of its layer's kv heads, and layers that move
/// together have their query heads in the same order.
void check_order(const HeadOrder& order, const ModelSpec& source);

/// Whether the heads of that layer may be reordered; ALiBi slopes and relative biases move with
/// them. Layers that move together must have the same number of kv heads.
bool heads_can_move(const ModelSpec& source, AttentionRole role, std::size_t layer);

/// Sets the ALiBi slopes of `grouped` to those of `source` in that order, if both have ALiBi.
void move_slopes(const HeadOrder& order, const ModelSpec& source, ModelSpec& grouped);

// All heads of one attention layer in double: input and output of pooling methods.

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
  /// Weights and biases of the norms of queries and keys as they are stored, [d] for each head or
  /// [H·d] and [G·d] for all together; empty where there is none, or one for each head.
  DenseLinear q_norm, k_norm;
  double norm_offset = 0.0;  ///< added to the stored weights
};

/// One stored tensor of a pooled attention.
struct PooledTensor {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  DenseLinear AttentionHeads::* part = &AttentionHeads::k;
  bool bias = false;

  bool is_norm() const {
    return part == &AttentionHeads::q_norm || part == &AttentionHeads::k_norm;
  }

  /// Its values in the attention: a weight, row-major, or a bias.
  const std::vector<double>& values_in(const AttentionHeads& heads) const {
    return bias ? (heads.*part).bias : (heads.*part).weight;
  }
};

/// All numbers of a stored tensor, in their order.
std::vector<double> stored_numbers(const Checkpoint& checkpoint, const std::string& name);

/// Reads the attention of one layer. Throws kBadInput for tensors that are not numeric.
AttentionHeads read_attention_heads(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                    const Checkpoint& checkpoint);

/// Rows of as many blocks of `size` numbers as `order` has, each row in another order: place p
/// holds block order[p].
std::vector<double> blocks_in_order(const std::vector<double>& rows,
                                    std::span<const std::int64_t> order, std::int64_t size);

/// The same attention with permuted kv heads and their query heads: place p holds kv head order[p].
AttentionHeads in_order(AttentionHeads heads, const std::vector<std::int64_t>& order);

/// Whether every number is finite.
bool all_finite(std::span<const double> numbers);

/// The name, from `names`, of the first tensor that holds NaN or infinity; empty if none does.
std::string nonfinite_tensor(const AttentionHeads& heads, const AttentionLayout& names);

// Balanced partitions of a layer's heads into groups, and the search for a good one.

/// Heads of one group, ascending.
using HeadGroup = std::vector<std::int64_t>;

/// Groups of equal size that hold each head once, ordered by their first heads.
using Partition = std::vector<HeadGroup>;

/// Computes the cost of each group, ≥ 0. A call has many groups, so that it can compute them in
/// parallel.
using GroupCosts = std::function<std::vector<double>(const std::vector<HeadGroup>& groups)>;

/// Costs of groups that are requested once each.
class KnownCosts {
 public:
  explicit KnownCosts(GroupCosts costs) : costs_(std::move(costs)) {}

  /// The costs of these groups. Requests those that are not known yet, at once.
  std::vector<double> of(const std::vector<HeadGroup>& groups);

  /// How many groups were requested.
  std::int64_t requested() const { return std::ssize(known_); }

 private:
  GroupCosts costs_;
  std::map<HeadGroup, double> known_;
};

/// Groups of neighbours.
Partition contiguous_partition(std::int64_t heads, std::int64_t groups);

double cost_of(const Partition& partition, const GroupCosts& costs);

/// A partition with a small total cost, at most that of the contiguous one. The search grows groups
/// greedily and swaps heads while that helps, both by the sum of pair costs, then swaps while that
/// helps by the costs of whole groups. Requests the costs of all pairs and, for groups of more than
/// two, of at most `most_groups` groups. Deterministic for given costs.
Partition similar_partition(std::int64_t heads, std::int64_t groups, const GroupCosts& costs,
                            std::int64_t most_groups = 128);

// Moves heads from one stored tensor to another: copies them, or averages them within groups (mean
// pooling, Ainslie et al. 2023, "GQA", section 2.1); may also permute features and change the
// layout.

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

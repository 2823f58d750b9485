// Which weights a run may change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/optim/master_weights.h"

namespace regroup {

enum class TrainedWeights {
  kAll,
  kAttention,      ///< every attention: projections, norms of queries and keys, relative biases
  kKeysAndValues,  ///< what conversion changes: key and value projections, norms of keys
};

/// "all", "attention" or "kv".
std::string_view name_of(TrainedWeights which);

/// Reads such a name; throws kUsage for anything else.
TrainedWeights parse_trained_weights(std::string_view text);

/// Names of the tensors that hold such weights, in all roles of attention. Includes fused tensors
/// of queries, keys and values; FrozenQueries keeps their queries unchanged.
std::vector<std::string> trained_tensors(const ModelSpec& spec, TrainedWeights which);

/// Freezes the queries in fused tensors if only keys and values are trained.
class FrozenQueries {
 public:
  /// Stores the queries of `masters`; does nothing unless `which` is kKeysAndValues.
  FrozenQueries(const ModelSpec& spec, TrainedWeights which, const MasterWeights& masters);

  bool any() const { return !features_.empty(); }

  /// Zeroes their part of `gradients`, one per master.
  void clear(const std::vector<at::Tensor>& gradients) const;

  /// Restores their values: weight decay also changes weights without gradients.
  void restore() const;

 private:
  struct Features {
    std::size_t master = 0;
    std::int64_t dimension = 0;
    at::Tensor index;   // int64, along the dimension
    at::Tensor tensor;  // the master, or one of its halves
    at::Tensor values;  // the features' own
  };
  std::vector<Features> features_;
};

}  // namespace regroup

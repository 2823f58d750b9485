// A step that makes one tensor of the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "converter/heads/heads.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/checkpoint_writer.h"

namespace regroup {

/// Changes a linear map from reading the output of one norm to reading that of another, both of the
/// same normalised x: with norm weights γ and biases β of `from` and `to`, W·(γ_from x + β_from) +
/// b becomes W'·(γ_to x + β_to) + b' where W' = W·diag(γ_from / γ_to) and b' = b + W β_from − W'
/// β_to.
struct NormFold {
  NormTensors from;
  NormTensors to = {};  ///< absent: γ = 1, β = 0
  /// For a bias: how its weight [out, in] is made, before folding.
  std::vector<HeadMove> weight_moves = {};
  Shape weight_shape = {};
};

/// An output tensor that is a copy of a tensor, a target of moves, or filled with given values.
struct TensorStep {
  OutputTensor output;
  std::string copy_of = {};  ///< the source tensor if it is unchanged, else empty
  std::vector<HeadMove> moves = {};
  double add = 0.0;                 ///< to every element, after the moves
  std::vector<double> values = {};  ///< all values, if no source tensor is involved
  std::optional<NormFold> fold = {};
  bool unit_rows = false;  ///< each row is divided by its L2 norm, after the moves

  bool unchanged() const { return !copy_of.empty(); }

  /// The part of a solved layer that it is made from, or null.
  const PooledTensor* solved() const {
    const PooledTensor* part = solved_in(moves);
    return part == nullptr && fold ? solved_in(fold->weight_moves) : part;
  }

 private:
  static const PooledTensor* solved_in(const std::vector<HeadMove>& moves) {
    const auto found =
        std::ranges::find_if(moves, [](const HeadMove& move) { return move.pooled.has_value(); });
    return found != moves.end() ? &*found->pooled : nullptr;
  }
};

/// Whether all weights of the kept norm are large enough, relative to the folded norm, for an
/// accurate quotient. `offset` is added to stored norm weights.
bool can_fold(const Checkpoint& checkpoint, const NormFold& fold, double offset);

/// The numbers of one fold, read from the checkpoint; absent norms have γ = 1, β = 0.
struct FoldedNorm {
  std::vector<double> ratio;  ///< γ_from / γ_to, per input
  std::vector<double> shift;  ///< β_from − β_to·γ_from / γ_to, per input

  FoldedNorm(const Checkpoint& checkpoint, const NormFold& fold, double offset);

  /// Folds a weight [out, in] in place.
  void apply_to_weight(std::span<double> weight) const;

  /// Adds the contribution to the bias [out], given the weight [out, in] before folding.
  void apply_to_bias(std::span<double> bias, std::span<const double> weight) const;
};

// Builds the steps that make one model's tensors from another's: linear maps, norms, vectors.

using Rows = std::vector<std::int64_t>;

/// Output features to be moved from one linear map to another, in blocks of `rows` features.
struct Features {
  Rows from, to;  ///< first feature of each block
  std::int64_t rows = 0;
  std::int64_t total = 0;  ///< features of the result's tensor
  /// Per block of the result; empty: same block.
  std::vector<std::vector<std::int64_t>> mean_of = {};
  Rows row_order = {};
  std::optional<PooledTensor> pooled = std::nullopt;  ///< if set, the features come from it

  /// `count` features, unchanged.
  static Features all(std::int64_t count) { return {{0}, {0}, count, count}; }

  /// The same features from a pooled layer, whose heads are contiguous.
  Features out_of(const PooledTensor& tensor, std::int64_t heads) const {
    Features features = *this;
    features.pooled = tensor;
    features.from = evenly_spaced(heads, rows);
    return features;
  }
};

/// Collects steps in the order in which their results are first named. Tensors missing on either
/// side are skipped, except target-only biases, which become zeros.
class TensorStepBuilder {
 public:
  /// Norm weights are stored minus `source_offset` in the source and minus `target_offset` in the
  /// result.
  TensorStepBuilder(const Checkpoint& checkpoint, double source_offset, double target_offset)
      : checkpoint_(checkpoint), source_offset_(source_offset), target_offset_(target_offset) {}

  /// One tensor of a linear map; `columns` if its features are a matrix's second dimension. In
  /// fused packings several calls fill the same result. Throws kBadInput if values that cannot be
  /// decoded must be computed with.
  void place(const std::string& from, bool from_columns, const std::string& to, bool to_columns,
             const Features& features);

  /// Weight and bias; `fold` is folded into them. If the result has the map, the source must have
  /// it.
  void linear(const LinearTensors& from, const LinearTensors& to, const Features& features,
              const NormFold* fold = nullptr);
  /// The same for all features, unchanged.
  void linear(const LinearTensors& from, const LinearTensors& to, const NormFold* fold = nullptr);

  /// Blocks of `rows` rows of a matrix, or of a stack of matrices seen as one, into a tensor of
  /// that shape. Several calls may fill the same result.
  void copy_rows(const std::string& from, const Rows& from_rows, const std::string& to,
                 const Shape& shape, const Rows& to_rows, std::int64_t rows);

  /// A matrix [out, in] whose rows are divided by their L2 norms.
  void unit_rows(const std::string& from, const std::string& to);

  /// A vector with one number per feature.
  void vector(const std::string& from, const std::string& to, const Features& features);

  /// Weights, adjusted by the difference of the two offsets, and biases.
  void norm(const NormTensors& from, const NormTensors& to);

  /// Makes `to` a norm with weights 1 and biases 0, shaped and typed as `like`.
  void identity_norm(const NormTensors& to, const NormTensors& like);

  /// Makes `name` a vector of zeros.
  void zeros(const std::string& name, DType dtype, std::int64_t count) {
    step(name, dtype, {count});
  }

  /// The first dimension of a tensor of the source.
  std::int64_t rows_of(const std::string& name) const { return checkpoint_.at(name).shape.at(0); }

  std::vector<TensorStep> take() { return std::move(steps_); }

 private:
  TensorStep& step(const std::string& name, DType dtype, Shape shape);
  void fold_into(const LinearTensors& to, const NormFold& fold);

  const Checkpoint& checkpoint_;
  double source_offset_;
  double target_offset_;
  std::vector<TensorStep> steps_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace regroup

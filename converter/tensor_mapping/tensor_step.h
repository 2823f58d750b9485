// One output tensor of a conversion and how it is made: plain data.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "converter/heads/move_heads.h"
#include "formats/checkpoint/checkpoint_writer.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Changes a linear map from reading the output of one norm to reading that of another, both of the
/// same normalised x: with norm weights γ and biases β of `from` and `to`, W·(γ_from x + β_from) +
/// b becomes W'·(γ_to x + β_to) + b' where W' = W·diag(γ_from / γ_to) and b' = b + W β_from − W'
/// β_to.
struct NormFold {
  NormTensors from;
  NormTensors to;  ///< absent: γ = 1, β = 0
  /// For a bias: how its weight [out, in] is made, before folding.
  std::vector<HeadMove> weight_moves;
  Shape weight_shape;
};

/// An output tensor that is a copy of a tensor, a target of moves, or filled with given values.
struct TensorStep {
  OutputTensor output;
  std::string copy_of;  ///< the source tensor if it is unchanged, else empty
  std::vector<HeadMove> moves;
  double add = 0.0;            ///< to every element, after the moves
  std::vector<double> values;  ///< all values, if no source tensor is involved
  std::optional<NormFold> fold;
  bool unit_rows = false;  ///< each row is divided by its L2 norm, after the moves

  bool unchanged() const { return !copy_of.empty(); }

  /// The part of a solved layer that it is made from, or null.
  const PooledTensor* solved() const {
    const PooledTensor* part = solved_in(moves);
    return part == nullptr && fold ? solved_in(fold->weight_moves) : part;
  }

 private:
  static const PooledTensor* solved_in(const std::vector<HeadMove>& moves) {
    const auto found = std::find_if(moves.begin(), moves.end(),
                                    [](const HeadMove& move) { return move.pooled.has_value(); });
    return found != moves.end() ? &*found->pooled : nullptr;
  }
};

}  // namespace regroup

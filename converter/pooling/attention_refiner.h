// Interface for improving a pooled attention further.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "converter/heads/attention_heads.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// How far an attention's output is from the source's before refining and after it: expected
/// squared error / expected square, over text that was not used to improve it.
struct RefinementReport {
  double error_before = 0.0, error_after = 0.0;
  double learning_rate = 0.0;  ///< given or found
};

/// Progress of refining, after one step on one attention.
struct RefinementStep {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::int64_t step = 0;  ///< of steps(), counted from 1
  double error = 0.0;     ///< as in RefinementReport, on the text of this step
};

/// Whether heads of that model can be refined. Keys that are normalised with separate weights for
/// each head allow no change of basis.
inline bool can_refit(const ModelSpec& spec) {
  return spec.qk_norm != QkNorm::kPerHead && spec.qk_norm != QkNorm::kProjection;
}

class AttentionRefiner {
 public:
  virtual ~AttentionRefiner() = default;

  /// Changes the heads of one pooled attention, whose query heads are those of the source in
  /// `query_order`. Called once for each attention, in the order of computation: encoder before
  /// decoder, layer by layer, self-attention before cross-attention.
  virtual RefinementReport refine(AttentionRole role, std::size_t layer,
                                  std::span<const std::int64_t> query_order,
                                  AttentionHeads& heads) = 0;

  /// Steps per attention.
  virtual std::int64_t steps() const { return 0; }

  /// Sets `progress`, called after each step on the refining thread.
  void report_to(std::function<void(const RefinementStep&)> progress) {
    progress_ = std::move(progress);
  }

  /// The recipe as a JSON object, for the record in the result.
  virtual std::string recipe() const = 0;

  /// The cost of refining into `grouped`, as the number of tokens of uptraining with the same
  /// number of multiplications with weights.
  virtual double training_token_equivalents(const ModelSpec& grouped) const = 0;

 protected:
  std::function<void(const RefinementStep&)> progress_;  ///< may be empty
};

}  // namespace regroup

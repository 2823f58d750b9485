// What may improve a pooled attention further, knowing what it is there to compute.
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
};

/// Where refining stands, after one step on one attention.
struct RefinementStep {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::int64_t step = 0;  ///< of steps(), counted from 1
  double error = 0.0;     ///< as in RefinementReport, on the text of this step
};

class AttentionRefiner {
 public:
  virtual ~AttentionRefiner() = default;

  /// Changes the heads of one pooled attention, whose query heads are those of the source in
  /// `query_order`. Called once for each, in the order in which a model computes: an encoder before
  /// the decoder, layer by layer, self-attention before cross-attention.
  virtual RefinementReport refine(AttentionRole role, std::size_t layer,
                                  std::span<const std::int64_t> query_order,
                                  AttentionHeads& heads) = 0;

  /// Steps that each attention takes.
  virtual std::int64_t steps() const { return 0; }

  /// Has `progress` called after each step, by the thread that refines.
  void report_to(std::function<void(const RefinementStep&)> progress) {
    progress_ = std::move(progress);
  }

  /// How it refines, as a JSON object: for the record in the result.
  virtual std::string recipe() const = 0;

  /// What refining into `grouped` costs, in tokens that uptraining could learn from for as many
  /// multiplications with weights.
  virtual double training_token_equivalents(const ModelSpec& grouped) const = 0;

 protected:
  std::function<void(const RefinementStep&)> progress_;  ///< may be empty
};

}  // namespace regroup

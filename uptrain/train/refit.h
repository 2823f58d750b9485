// Refitting the attentions one by one to the source's outputs.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include <c10/core/Device.h>

#include "converter/convert/attention_pooler.h"
#include "converter/heads/heads.h"
#include "formats/model/model.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/lr_schedule.h"

namespace regroup {

// Refitting: after pooling, each attention is trained separately to reproduce the output of the
// source's attention on a text, given the source's inputs.
//
// It is cheap compared to uptraining, because gradients stay inside one attention and layers are
// independent. Training on the source's inputs measures as well as training on those of the
// converted layers before (docs/pooling.md).

struct RefitSettings {
  /// Windows of the text. A step uses one batch of windows and cycles through the batches.
  WindowSettings windows{.context = 512, .batch = 2, .max_tokens = 131'072};
  std::int64_t steps = 200;  ///< for each attention
  /// The peak, relative to the root mean square of the weights that it moves. Unless given, short
  /// trials find one for each attention, see RateSearch.
  std::optional<double> learning_rate;
  c10::Device device = c10::kCPU;
};

/// Inputs and outputs of an attention, batch by batch.
struct AttentionRecord {
  Batches inputs, outputs;
};

class Refit : public AttentionRefiner {
 public:
  /// Holds out one batch in ten, at least one, for measuring. Throws kBadInput for fewer than two
  /// batches of text or tokens outside the vocabulary, kUsage for models with per-head norms. Keeps
  /// references to `source` and `stop`.
  Refit(const Model& source, const TokenFile& data, const RefitSettings& settings,
        const std::atomic<bool>& stop);

  /// Minimises the mean squared error of the output with AdamW (no decay, cosine schedule), all
  /// weights scaled to a root mean square of 1. Reports no progress of trials. Keeps the heads
  /// unchanged if the error does not decrease. Holds the inputs and outputs of one layer over the
  /// whole text in memory, in fp32. Throws kInterrupted soon after `stop` turns true, kEnvironment
  /// without memory or device.
  RefinementReport refine(AttentionRole role, std::size_t layer,
                          std::span<const std::int64_t> query_order,
                          AttentionHeads& heads) override;

  std::int64_t steps() const override { return settings_.steps; }

  Recipe recipe() const override;

  /// Includes the walk over the source.
  double training_token_equivalents(const ModelSpec& grouped) const override;

 private:
  void walk_to(AttentionRole role, std::size_t layer);
  RefinementReport fit(AttentionRole role, std::size_t layer,
                       std::span<const std::int64_t> query_order, AttentionHeads& heads);

  const ModelSpec& spec_;
  RefitSettings settings_;
  const std::atomic<bool>& stop_;
  std::int64_t tokens_ = 0;
  std::size_t batches_ = 0;   // all
  std::size_t measured_ = 0;  // the last of them, held out
  LayerWalk walk_;
  std::map<AttentionRole, AttentionRecord> records_;  // of the current layer of the walk
  std::map<AttentionRole, RateSearch> rates_;
};

}  // namespace regroup

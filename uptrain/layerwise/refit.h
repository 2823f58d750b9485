// Refitting: after pooling, each attention by itself learns to give what the source's gives on a
// text, from the inputs that the source gives it.
//
// It is cheap beside uptraining, since gradients stay inside of one attention, and layers do not
// wait for each other's errors: with the source's own inputs the result measures as well as with
// those of the converted layers before (docs/pooling.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <c10/core/Device.h>

#include "converter/pooling/attention_refiner.h"
#include "formats/model/model.h"
#include "formats/token_files/token_file.h"
#include "uptrain/layerwise/layer_walk.h"

namespace regroup {

struct RefitSettings {
  /// Of the text: a step sees one batch of windows, after the last batch it begins anew.
  WindowSettings windows{.context = 512, .batch = 2, .max_tokens = 131'072};
  std::int64_t steps = 200;  ///< for each attention
  /// The peak, relative to the root mean square of the weights that it moves.
  double learning_rate = 0.1;
  c10::Device device = c10::kCPU;
};

class Refit : public AttentionRefiner {
 public:
  /// One batch in ten, at least one, is not learned from but measures. Throws kBadInput for fewer
  /// than two batches of text or tokens outside the vocabulary, kUsage for models whose heads have
  /// norms of their own. Keeps references to `source` and `stop`.
  Refit(const Model& source, const TokenFile& data, const RefitSettings& settings,
        const std::atomic<bool>& stop);

  /// Minimises the mean squared error of the output with AdamW (no decay, cosine schedule), all
  /// weights scaled to a root mean square of 1; leaves the heads as they are where that does not
  /// help. In memory are the inputs and outputs of one layer over the whole text, in fp32. Throws
  /// kInterrupted soon after `stop` turns true, kEnvironment without memory or device.
  RefinementReport refine(AttentionRole role, std::size_t layer,
                          std::span<const std::int64_t> query_order,
                          AttentionHeads& heads) override;

  std::int64_t steps() const override { return settings_.steps; }

  std::string recipe() const override;

  /// Walking over the source included.
  double training_token_equivalents(const ModelSpec& grouped) const override;

 private:
  // What an attention reads and gives, batch by batch.
  struct Record {
    Batches inputs, outputs;
  };

  void walk_to(AttentionRole role, std::size_t layer);
  RefinementReport fit(AttentionRole role, std::size_t layer,
                       std::span<const std::int64_t> query_order, AttentionHeads& heads);

  const ModelSpec& spec_;
  RefitSettings settings_;
  const std::atomic<bool>& stop_;
  std::int64_t tokens_ = 0;
  std::size_t batches_ = 0;   // all
  std::size_t measured_ = 0;  // the last of them, which are not learned from
  LayerWalk walk_;
  std::map<AttentionRole, Record> records_;  // of the layer where the walk stands
};

}  // namespace regroup

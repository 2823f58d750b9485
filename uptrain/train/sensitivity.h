// How much each layer's heads matter.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/ops/attention.h"
#include "uptrain/train/calibrate.h"

namespace regroup {

// Measures the distances between queries and the keys that an attention attends to.
//
// Shapes: B sequences of T positions, H query heads.

/// How scores are made of q·k.
struct ScoreSettings {
  std::optional<double> scale, softcap;  ///< as in ModelSpec
};

class AttentionDistances {
 public:
  /// Counts distances below `most`.
  explicit AttentionDistances(std::int64_t most) : most_(most) {}

  /// Adds the attention of B·T queries, as attend() computes it, or attend_in_window().
  void add(const Heads& heads, const at::Tensor& mask, std::optional<std::int64_t> window,
           const ScoreSettings& scores, bool causal);

  bool any() const { return sums_.defined(); }

  /// The fraction of the attention at each distance, in double on the device of the heads: [H, T],
  /// at most `most` distances; rows sum to 1.
  at::Tensor shares() const;

 private:
  std::int64_t most_;
  at::Tensor sums_;  ///< [H, T]
};

// Measures, layer by layer, what a model loses if only that layer's kv heads are pooled.

/// The change of the next-token distribution if only this layer is pooled to `kv_heads`: KL(source
/// ‖ changed) in nats, mean over tokens.
struct Sensitivity {
  std::size_t layer = 0;
  std::int64_t kv_heads = 0;
  double divergence = 0.0;
};

/// Throws kUsage for models with an encoder, and for those that normalise keys by weights of each
/// head.
void check_measurable(const ModelSpec& spec);

/// Measures every layer of a decoder-only model for every proper divisor of its kv heads. Pools as
/// in `request`, whose kv_heads are ignored; groups similar heads if its grouping is "similar".
/// Computes in `type`, log-probabilities in fp32. Holds one layer of the source at a time in
/// memory, plus the hidden states of the text for every layer and divisor. Calls `progress`, unless
/// it is empty, with the number of steps done: layers, then batches of windows. Throws what
/// check_measurable() does, kInterrupted soon after `stop` turns true.
std::vector<Sensitivity> measure_sensitivity(const Model& source, const ConversionRequest& request,
                                             const TokenFile& data, const WindowSettings& windows,
                                             c10::Device device,
                                             const std::function<void(std::size_t)>& progress,
                                             const std::atomic<bool>& stop,
                                             at::ScalarType type = at::kFloat);

}  // namespace regroup

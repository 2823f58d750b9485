// Measures how far the predictions of two models differ on the same tokens.
//
// Shapes: B windows of T tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include <c10/core/Device.h>

#include "formats/model/model.h"
#include "uptrain/layerwise/layer_walk.h"

namespace regroup {

/// Means and maxima over all predictions: one per token of the windows, for encoder-decoders one
/// per token of their second halves.
struct PredictionComparison {
  std::int64_t tokens = 0;
  double kl = 0.0;                  ///< KL(source ‖ result), mean, in nats per token
  double largest_kl = 0.0;          ///< of one token
  double mean_difference = 0.0;     ///< of two logits, absolute
  double largest_difference = 0.0;  ///< of two logits
  double largest_logit = 0.0;       ///< of the source, absolute
  double agreement = 0.0;           ///< how often the most likely token is the same, 0 to 1
};

/// Layers that compare_predictions() computes, of both models.
std::size_t layers_to_compare(const Model& source, const Model& result);

/// Throws kBadInput if the two have different vocabularies or numbers of logits.
void check_same_vocabulary(const Model& source, const Model& result);

/// Runs both models over `windows` (int64 [B, T] each) in fp32, without masking. Holds one layer at
/// a time in memory, plus the hidden states of all windows and two output projections. Calls
/// `progress`, unless it is empty, with the number of layers done. Throws what
/// check_same_vocabulary() does, kInterrupted soon after `stop` turns true.
PredictionComparison compare_predictions(const Model& source, const Model& result,
                                         const Batches& windows, c10::Device device,
                                         const std::function<void(std::size_t)>& progress,
                                         const std::atomic<bool>& stop);

/// Random tokens in as many windows as read_windows() would read from a long file, int64 [B, T]
/// each; deterministic for a vocabulary and settings.
Batches random_windows(std::int64_t vocab_size, const WindowSettings& settings);

}  // namespace regroup

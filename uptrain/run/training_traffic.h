// Bytes that travel between ranks in one step, counted before a run starts.
#pragma once

#include <cstdint>

#include "formats/spec/model_spec.h"
#include "uptrain/run/uptrain_settings.h"

namespace regroup {

/// Bytes per rank and step, the mean of all ranks. Algorithms of the process group may move more:
/// what passes through a rank on its way to others is not counted.
struct TrainingTraffic {
  double weights = 0.0;    ///< received: weights that other ranks own
  double gradients = 0.0;  ///< sent to the ranks that own their weights, in fp32

  /// Sent to the ranks with the same part of other copies, which sum their gradients in fp32: twice
  /// the part that they own, less a share (an all-reduce as a ring).
  double copies = 0.0;

  /// Received: keys and values of the other parts of sequences, in each pass; sent: their
  /// gradients, in fp32.
  double sequences = 0.0;

  double total() const { return weights + gradients + copies + sequences; }
};

/// None with a single rank. `teacher` is null without one. `sequence_length`: in tokens.
TrainingTraffic training_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                                 const ModelSpec* teacher, std::int64_t sequence_length);

}  // namespace regroup

// Measures, layer by layer, what a model loses if only that layer's kv heads are pooled.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <c10/core/Device.h>

#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"
#include "formats/token_files/token_file.h"
#include "uptrain/layerwise/layer_walk.h"

namespace regroup {

struct SensitivitySettings {
  WindowSettings windows;
  c10::Device device = c10::kCPU;
};

/// The change of the next-token distribution if only this layer is pooled to `kv_heads`: KL(source
/// ‖ changed) in nats, mean over tokens.
struct Sensitivity {
  std::size_t layer = 0;
  std::int64_t kv_heads = 0;
  double divergence = 0.0;
};

/// Measures every layer of a decoder-only model for every proper divisor of its kv heads. Pools as
/// in `request`, whose kv_heads are ignored; groups similar heads if its grouping is "similar".
/// Holds one layer of the source at a time in memory, plus the hidden states of the text for every
/// layer and divisor. Calls `progress`, unless it is empty, with the number of layers done. Throws
/// kUsage for models with an encoder, kInterrupted soon after `stop` turns true.
std::vector<Sensitivity> measure_sensitivity(const Model& source, const ConversionRequest& request,
                                             const TokenFile& data,
                                             const SensitivitySettings& settings,
                                             const std::function<void(std::size_t)>& progress,
                                             const std::atomic<bool>& stop);

}  // namespace regroup

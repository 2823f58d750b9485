// What a model loses where the kv heads of one layer alone are shared: measured, layer by layer.
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

/// Pooled to `kv_heads` by itself, the layer moves the model's next-token distribution by that many
/// nats: KL(source ‖ changed), mean over tokens.
struct Sensitivity {
  std::size_t layer = 0;
  std::int64_t kv_heads = 0;
  double divergence = 0.0;
};

/// Of every layer of a decoder-only model, for every proper divisor of its kv heads, pooled as
/// `request` asks but for its kv_heads; where its grouping is "similar", in groups of similar
/// heads. One layer of the source is in memory at a time, beside the hidden states of the text for
/// every layer and divisor. `progress` is told how many layers are done. Throws kUsage for models
/// with an encoder, kInterrupted soon after `stop` turns true.
std::vector<Sensitivity> measure_sensitivity(const Model& source, const ConversionRequest& request,
                                             const TokenFile& data,
                                             const SensitivitySettings& settings,
                                             const std::function<void(std::size_t)>& progress,
                                             const std::atomic<bool>& stop);

}  // namespace regroup

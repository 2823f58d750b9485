// Statistics of what every attention of a model reads while it reads a text: what pooling methods
// need to know which errors matter (converter/pooling/inputs/calibration.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

#include <c10/core/Device.h>

#include "formats/model/model.h"
#include "formats/token_files/token_file.h"
#include "uptrain/layerwise/layer_walk.h"

namespace regroup {

/// Called with the layers done and the layers there are.
using CalibrationProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Writes `output`, a safetensors file that names its source model, with mean and covariance of the
/// inputs of each layer's attention and, where keys rotate, how far each head looks, as F32. An
/// encoder reads the first half of each window, the decoder beside it the second. Computed on
/// `device`, where one layer is in memory at a time, beside the hidden states of all windows in
/// fp32 (tokens · D · 4 bytes) and two matrices of D² in fp64. Throws kUsage if `output` exists; it
/// appears when it is complete; kInterrupted soon after `stop` turns true.
void calibrate(const Model& source, const TokenFile& data, const WindowSettings& settings,
               c10::Device device, const std::filesystem::path& output,
               const CalibrationProgress& progress, const std::atomic<bool>& stop);

}  // namespace regroup

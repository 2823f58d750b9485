// Input statistics of every attention of a model over a text. Pooling methods weigh errors with
// them (converter/pooling/inputs/calibration.h).
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

/// Called with the number of layers done and the total, unless it is empty.
using CalibrationProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Writes `output`, a safetensors file that names its source model. It holds mean and covariance of
/// the inputs of each layer's attention and, if keys are rotated, the attention distances of each
/// head, as F32. In an encoder-decoder the encoder reads the first half of each window, the decoder
/// the second. Holds on `device` one layer at a time, the hidden states of all windows in fp32
/// (tokens · D · 4 bytes) and two D² matrices in fp64. `output` appears when it is complete. Throws
/// kUsage if `output` exists, kInterrupted soon after `stop` turns true.
void calibrate(const Model& source, const TokenFile& data, const WindowSettings& settings,
               c10::Device device, const std::filesystem::path& output,
               const CalibrationProgress& progress, const std::atomic<bool>& stop);

}  // namespace regroup

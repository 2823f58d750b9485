// Statistics of what every attention of a model reads while it reads a text: what pooling methods
// need to know which errors matter (converter/pooling/calibration.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "formats/model.h"
#include "uptrain/token_file.h"

namespace regroup {

struct CalibrationSettings {
  std::int64_t context = 512;        ///< tokens in a window
  std::int64_t batch = 8;            ///< windows at a time
  std::int64_t max_tokens = 32'768;  ///< read about so many
};

/// Called with the layers done and the layers there are.
using CalibrationProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Windows of consecutive tokens that calibrate() reads. Throws kBadInput for a file shorter than
/// one, kUsage for settings below 1.
std::int64_t calibration_windows(const TokenFile& data, const CalibrationSettings& settings);

/// Writes `output`, a safetensors file that names its source model, with mean and covariance of the
/// inputs of each layer's attention, as F32. An encoder reads the first half of each window, the
/// decoder beside it the second. One layer is in memory at a time, beside the hidden states of all
/// windows in fp32 (tokens · D · 4 bytes). Throws kUsage if `output` exists; it appears when it is
/// complete; kInterrupted soon after `stop` turns true.
void calibrate(const Model& source, const TokenFile& data, const CalibrationSettings& settings,
               const std::filesystem::path& output, const CalibrationProgress& progress,
               const std::atomic<bool>& stop);

}  // namespace regroup

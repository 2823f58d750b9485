// Carries out a conversion plan: streams tensor by tensor, publishes the result when it is
// complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "converter/conversion_plan.h"
#include "formats/model.h"

namespace regroup {

/// Called after each tensor: bytes written so far and its name.
using ConversionProgress = std::function<void(std::uint64_t bytes_done, std::string_view tensor)>;

/// Looks at the complete result, still under another name, and throws if it must not appear.
using ConversionCheck = std::function<void(const std::filesystem::path& result)>;

/// The bytes of one output tensor. Throws kBadInput for NaN or infinities among pooled heads.
std::vector<std::byte> make_tensor(const TensorStep& step, const ConversionPlan& plan,
                                   const Checkpoint& checkpoint);

/// Writes the converted model to `destination`, which must not exist and appears only when it is
/// complete. Holds one output tensor and its sources at a time. Throws kInterrupted soon after
/// `stop` turns true, leaving nothing behind; kBadInput for NaN or infinities in K or V;
/// kEnvironment when writing fails or space cannot suffice; whatever `check` throws.
void execute_conversion(const ConversionPlan& plan, const Model& source,
                        const std::filesystem::path& destination,
                        const ConversionProgress& progress, const std::atomic<bool>& stop,
                        const ConversionCheck& check = {});

}  // namespace regroup

// Executes a conversion plan: streams tensor by tensor, publishes the result when it is complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

/// Called after each tensor, by one thread at a time, unless it is empty: bytes written so far and
/// its name.
using ConversionProgress = std::function<void(std::uint64_t bytes_done, std::string_view tensor)>;

/// Checks the complete result before it gets its final name, unless it is empty; throws if it must
/// not appear.
using ConversionCheck = std::function<void(const std::filesystem::path& result)>;

/// The bytes of one output tensor. Throws kBadInput for NaN or infinities among pooled heads.
/// `pooler` is that of the plan; it caches layers between calls.
std::vector<std::byte> make_tensor(const TensorStep& step, const ConversionPlan& plan,
                                   const Checkpoint& checkpoint, AttentionPooler& pooler);

/// The attention that gets fewer kv heads.
std::vector<std::pair<AttentionRole, std::size_t>> pooled_layers(const ConversionPlan& plan);

/// Computes the effect of pooling on every layer that gets fewer kv heads, before any refiner;
/// writes nothing.
std::vector<LayerReport> measure_pooling(const ConversionPlan& plan, const Checkpoint& checkpoint,
                                         const std::atomic<bool>& stop);

/// Writes the converted model to `destination`, which must not exist and appears only when it is
/// complete. Copies and computes in parallel on up to `threads` threads (0: one per core); the
/// result does not depend on them. Holds a few parts of tensors at a time (see parts_of()), or one
/// tensor that cannot be split and its sources. Throws kInterrupted soon after `stop` turns true,
/// leaving nothing behind; kBadInput for NaN or infinities in K or V; kEnvironment if writing fails
/// or space cannot suffice; whatever `check` throws.
///
/// Returns the measurements of the layers that were computed rather than moved.
std::vector<LayerReport> execute_conversion(const ConversionPlan& plan, const Model& source,
                                            const std::filesystem::path& destination,
                                            const ConversionProgress& progress,
                                            const std::atomic<bool>& stop,
                                            const ConversionCheck& check = {}, int threads = 0);

}  // namespace regroup

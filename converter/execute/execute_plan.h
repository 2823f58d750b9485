// Carries out a conversion plan: streams tensor by tensor, publishes the result when it is
// complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

/// Called after each tensor, by one thread at a time: bytes written so far and its name.
using ConversionProgress = std::function<void(std::uint64_t bytes_done, std::string_view tensor)>;

/// Looks at the complete result, still under another name, and throws if it must not appear.
using ConversionCheck = std::function<void(const std::filesystem::path& result)>;

/// The bytes of one output tensor. Throws kBadInput for NaN or infinities among pooled heads.
/// `pooler` is that of the plan, see pooler_of(); it remembers layers from one call to the next.
std::vector<std::byte> make_tensor(const TensorStep& step, const ConversionPlan& plan,
                                   const Checkpoint& checkpoint, AttentionPooler& pooler);

/// The same for `sink`, in parts where that is possible: see parts_of(). Throws what `sink` throws,
/// too; parts before a fault have been given by then.
void make_tensor_parts(const TensorStep& step, const ConversionPlan& plan,
                       const Checkpoint& checkpoint, AttentionPooler& pooler,
                       const TensorSink& sink);

/// What computes the plan's pooled layers. Keeps references to all.
AttentionPooler pooler_of(const ConversionPlan& plan, const Checkpoint& checkpoint,
                          const std::atomic<bool>* stop = nullptr);

/// The attention that gets fewer kv heads.
std::vector<std::pair<AttentionRole, std::size_t>> pooled_layers(const ConversionPlan& plan);

/// What pooling does to every layer that gets fewer kv heads, before any refiner: computed, but
/// nothing written.
std::vector<LayerReport> measure_pooling(const ConversionPlan& plan, const Checkpoint& checkpoint,
                                         const std::atomic<bool>& stop);

/// Writes the converted model to `destination`, which must not exist and appears only when it is
/// complete. Copies and computes side by side on up to `threads` threads (0: one per core), which
/// change nothing in the result; holds a few parts of tensors at a time (see parts_of()), or one
/// that cannot be made in parts and its sources. Throws kInterrupted soon after `stop` turns true,
/// leaving nothing behind; kBadInput for NaN or infinities in K or V; kEnvironment when writing
/// fails or space cannot suffice; whatever `check` throws.
///
/// Returns what was measured of the layers that were computed rather than moved.
std::vector<LayerReport> execute_conversion(const ConversionPlan& plan, const Model& source,
                                            const std::filesystem::path& destination,
                                            const ConversionProgress& progress,
                                            const std::atomic<bool>& stop,
                                            const ConversionCheck& check = {}, int threads = 0);

}  // namespace regroup

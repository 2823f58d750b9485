// Charts of a model: heads, KV cache, ALiBi slopes, and the effect of pooling.
#pragma once

#include <vector>

#include "cli/page/chart.h"
#include "cli/report/recorded_measurements.h"
#include "formats/inspect/layer_summary.h"
#include "formats/inspect/model_summary.h"

namespace regroup {

/// Kv heads and query heads by layer, one chart for each attention role.
std::vector<Chart> head_charts(const std::vector<LayerSummary>& layers);

/// The cache of one sequence by its length, compared with a cache that has a kv head for every
/// query head. Empty for models without a cache.
std::vector<Chart> cache_charts(const ModelSummary& summary);

/// ALiBi slopes by head. Empty for other models.
std::vector<Chart> slope_charts(const ModelSummary& summary);

/// Energy kept by pooling and errors after refitting, by layer: charts for each attention role that
/// was measured.
std::vector<Chart> conversion_charts(const RecordedMeasurements& record);

/// Logarithmic axes of memory in bytes and of tokens.
Axis memory_axis(const std::string& title);
Axis tokens_axis(const std::string& title);

}  // namespace regroup

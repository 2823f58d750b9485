// Heads, caches, slopes and what pooling kept of a model, as charts.
#pragma once

#include <vector>

#include "cli/page/chart.h"
#include "cli/report/conversion_record.h"
#include "formats/inspect/layer_summary.h"
#include "formats/inspect/model_summary.h"

namespace regroup {

/// Kv heads by layer beside the query heads: a chart for each role.
std::vector<Chart> head_charts(const std::vector<LayerSummary>& layers);

/// The cache of one sequence by its length, beside what it would be with a kv head for every query
/// head. Nothing where no cache is kept.
std::vector<Chart> cache_charts(const ModelSummary& summary);

/// ALiBi's slopes by head. Nothing in other models.
std::vector<Chart> slope_charts(const ModelSummary& summary);

/// Energy that pooling kept and errors that refitting left, by layer: charts for each attention
/// that was measured.
std::vector<Chart> conversion_charts(const ConversionRecord& record);

/// An axis of memory in bytes, or of tokens.
Axis memory_axis(const std::string& title);
Axis tokens_axis(const std::string& title);

}  // namespace regroup

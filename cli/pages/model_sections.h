// Page sections about a model that several pages share.
#pragma once

#include <optional>
#include <vector>

#include "cli/page/page.h"
#include "cli/report/recorded_measurements.h"
#include "formats/inspect/layer_summary.h"
#include "formats/inspect/model_summary.h"

namespace regroup {

/// Heads by layer, caches and slopes. Adds nothing if there is nothing to chart.
void add_heads(Page& page, const ModelSummary& summary, const std::vector<LayerSummary>& layers);

/// The provenance recorded in the weights. Adds nothing if none is recorded.
void add_provenance(Page& page, const ModelSummary& summary,
                    const std::optional<RecordedMeasurements>& conversion);

/// The energy that layers kept, and the errors before and after refitting.
void add_conversion(Page& page, const RecordedMeasurements& record);

}  // namespace regroup

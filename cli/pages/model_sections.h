// Sections about a model that several pages have.
#pragma once

#include <optional>
#include <vector>

#include "cli/page/page.h"
#include "cli/report/conversion_record.h"
#include "formats/inspect/layer_summary.h"
#include "formats/inspect/model_summary.h"

namespace regroup {

/// Heads by layer, caches and slopes; nothing where no config says what the layers are.
void add_heads(Page& page, const ModelSummary& summary, const std::vector<LayerSummary>& layers);

/// What the weights record of where they come from; nothing where they record nothing.
void add_provenance(Page& page, const ModelSummary& summary,
                    const std::optional<ConversionRecord>& conversion);

/// The energy that layers kept, and what refitting won.
void add_conversion(Page& page, const ConversionRecord& record);

}  // namespace regroup

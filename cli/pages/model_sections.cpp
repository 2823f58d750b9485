#include "cli/pages/model_sections.h"

#include "cli/pages/model_charts.h"
#include "cli/report/conversion_facts.h"
#include "cli/report/tensor_report.h"

namespace regroup {

void add_heads(Page& page, const ModelSummary& summary, const std::vector<LayerSummary>& layers) {
  std::vector<Chart> charts = head_charts(layers);
  for (const auto& more : {cache_charts(summary), slope_charts(summary)}) {
    charts.insert(charts.end(), more.begin(), more.end());
  }
  if (charts.empty()) {
    return;
  }
  page.begin_section("heads", "Heads and caches");
  page.add_charts(charts);
  if (summary.spec) {
    page.add_table(layers_table(layers, summary.spec->head_dim), "Layers", true);
  }
}

void add_provenance(Page& page, const ModelSummary& summary,
                    const std::optional<RecordedMeasurements>& conversion) {
  Facts lines = conversion_facts(summary.record, summary.architecture);
  if (lines.empty()) {
    return;
  }
  page.begin_section("provenance", summary.record.converted() ? "Conversion" : "Record");
  if (conversion && !conversion->source.empty()) {
    lines.insert(lines.begin(), {"converted from", conversion->source});
  }
  page.add_facts(lines);
}

void add_conversion(Page& page, const RecordedMeasurements& record) {
  const auto charts = conversion_charts(record);
  page.begin_section("kept", "What pooling kept");
  if (charts.empty()) {
    page.add_paragraph(
        "This conversion measured no layers. Run convert with --measure --json to measure them.");
  } else {
    page.add_charts(charts);
  }
}

}  // namespace regroup

#include "cli/page/model_page.h"

#include <fmt/format.h>

#include "cli/page/model_charts.h"
#include "cli/page/page.h"
#include "cli/page/training_charts.h"
#include "cli/tensor_report.h"
#include "cli/text.h"
#include "formats/printable.h"

namespace regroup {
namespace {

void add_summary(Page& page, const ModelPage& facts) {
  page.begin_section("summary", "Summary");
  page.add_warnings(facts.summary.disagreements);
  Facts lines;
  for (auto& [name, value] : summary_facts(facts.summary, facts.cache)) {
    if (name != "slopes") {  // they have a chart
      lines.emplace_back(name.empty() ? "by part" : name, value);
    }
  }
  page.add_facts(lines);
}

void add_heads(Page& page, const ModelPage& facts) {
  std::vector<Chart> charts = head_charts(facts.layers);
  for (const auto& more : {cache_charts(facts.summary), slope_charts(facts.summary)}) {
    charts.insert(charts.end(), more.begin(), more.end());
  }
  if (charts.empty()) {
    return;
  }
  page.begin_section("heads", "Heads and caches");
  page.add_charts(charts);
  if (facts.summary.spec) {
    page.add_table(layers_table(facts.layers, facts.summary.spec->head_dim), "Layers", true);
  }
}

// What the weights record of where they come from.
void add_provenance(Page& page, const ModelPage& facts) {
  if (facts.summary.provenance.empty()) {
    return;
  }
  page.begin_section("provenance", "Conversion");
  Facts lines;
  if (facts.conversion && !facts.conversion->source.empty()) {
    lines.emplace_back("source", facts.conversion->source);
  }
  for (const auto& [key, value] : facts.summary.provenance) {
    if (key != "alibi_slopes" && key != "alibi_encoder_slopes") {  // they have a chart
      lines.emplace_back(key, value);
    }
  }
  page.add_facts(lines);
}

void add_conversion(Page& page, const ConversionRecord& record) {
  const auto charts = conversion_charts(record);
  page.begin_section("kept", "What pooling kept");
  if (charts.empty()) {
    page.add_paragraph("This conversion measured no layers: convert --measure --json does.");
  } else {
    page.add_charts(charts);
  }
}

void add_training(Page& page, const TrainingCurve& curve) {
  page.begin_section("training", "Uptraining");
  const auto last = [](const std::vector<StepValue>& values) {
    return values.empty() ? "" : fmt::format("{:.4g}", values.back().value);
  };
  const auto first = [](const std::vector<StepValue>& values) {
    return values.size() < 2 ? "" : fmt::format("{:.4g} -> ", values.front().value);
  };
  const auto count = [](double number) { return number > 0 ? text_of_count(number) : ""; };
  page.add_facts({{"steps", with_thousands(curve.loss.size())},
                  {"tokens", count(curve.tokens)},
                  {"time in steps", curve.seconds > 0 ? text_of_duration(curve.seconds) : ""},
                  {"held-out loss", first(curve.evaluation) + last(curve.evaluation)},
                  {"skipped steps", curve.skipped > 0 ? with_thousands(curve.skipped) : ""}});
  page.add_charts(training_charts({{"", curve}}));
  if (!curve.recipe.empty()) {
    Table recipe;
    recipe.add_column("setting", Table::Align::kLeft);
    recipe.add_column("value", Table::Align::kLeft);
    for (const auto& [name, value] : curve.recipe) {
      recipe.add_row({name, value});
    }
    page.add_table(recipe, "Recipe");
  }
}

}  // namespace

std::string model_page(const ModelPage& facts) {
  const std::string path = facts.summary.path.string();
  Page page(path, "regroup inspect");
  add_summary(page, facts);
  add_heads(page, facts);
  add_provenance(page, facts);
  if (facts.conversion) {
    add_conversion(page, *facts.conversion);
  }
  if (!facts.similarities.empty()) {
    page.begin_section("similarity", "How alike heads are");
    page.add_heat_maps(facts.similarities);
  }
  if (facts.training) {
    add_training(page, *facts.training);
  }
  if (facts.tensors) {
    page.begin_section("tensors", "Tensors");
    page.add_table(*facts.tensors, "Tensors");
  }
  if (facts.statistics) {
    page.begin_section("statistics", "Numbers");
    page.add_table(*facts.statistics, "Numbers of each tensor");
  }
  return page.text();
}

}  // namespace regroup

#include "cli/pages/model_page.h"

#include <fmt/format.h>

#include "cli/page/page.h"
#include "cli/pages/model_sections.h"
#include "cli/pages/training_charts.h"
#include "cli/terminal/text.h"

namespace regroup {
namespace {

void add_summary(Page& page, const ModelPage& facts) {
  page.begin_section("summary", "Summary");
  page.add_warnings(facts.summary.disagreements);
  Facts lines;
  for (auto& [name, value] : summary_facts(facts.summary, facts.load)) {
    if (name == "converted") {
      break;  // the conversion has its own section
    }
    if (name != "slopes") {  // slopes have a chart
      lines.emplace_back(name.empty() ? "by part" : name, value);
    }
  }
  page.add_facts(lines);
}

// Only training after a conversion is called uptraining.
void add_training(Page& page, const TrainingCurve& curve, bool converted) {
  page.begin_section("training", converted ? "Uptraining" : "Training");
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
  add_heads(page, facts.summary, facts.layers);
  add_provenance(page, facts.summary, facts.conversion);
  if (facts.conversion) {
    add_conversion(page, *facts.conversion);
  }
  if (facts.training) {
    add_training(page, *facts.training, facts.summary.record.converted());
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

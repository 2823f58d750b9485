#include <algorithm>
#include <cmath>
#include <functional>

#include "cli/report/conversion_facts.h"
#include "cli/report/conversion_report.h"
#include "cli/shell/text.h"
#include "converter/convert/runtimes.h"
#include "converter/convert/target.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/model/record_words.h"

namespace regroup {
namespace {

// "-" where it was not measured.
std::string decimals_of(const std::optional<double>& number) {
  return number ? fmt::format("{:.3f}", *number) : "-";
}

// The mean of `number` over `parts`, of which there is at least one.
template <typename Part, typename Number>
double mean_over(const std::vector<Part>& parts, const Number& number) {
  double sum = 0.0;
  for (const Part& part : parts) {
    sum += std::invoke(number, part);
  }
  return sum / static_cast<double>(parts.size());
}

// The shares of energy in the two groupings of a layer.
double kept_by_similar(const LayerGrouping& layer) { return 1.0 - layer.loss / 2; }
double kept_by_neighbours(const LayerGrouping& layer) { return 1.0 - layer.contiguous_loss / 2; }

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// Whether calibrate supports the model, and lowrank can use its statistics.
bool can_calibrate(const ModelSpec& spec) {
  return spec.not_computable.empty() && !spec.attention_only() && !spec.clip_qkv;
}

// The options that give a better result; empty if they would not.
std::string better_options(const ConversionPlan& plan) {
  return can_calibrate(plan.spec)
             ? fmt::format(
                   "; --text FILE, with text that the model should do well on,{} loses far less",
                   needs_solver(plan.request.pooling.method) ? " or --calibration" : "")
             : "";
}

// Empty if something has adapted the heads to the model's inputs.
std::string of_unadapted_heads(const ConversionReport& done) {
  const ConversionRequest& request = done.plan.request;
  const bool solved = needs_solver(request.pooling.method) && request.calibration;
  const bool distilled = done.distillation && done.distillation->kept == true;
  return solved || request.refiner || distilled
             ? ""
             : text_of_unadapted_heads("the result", name_of(request.pooling.method)) +
                   better_options(done.plan);
}

bool is_copy(const ConversionReport& done) {
  return done.plan.request.positions == PositionChange::kKeep && done.plan.in_place &&
         done.plan.container == container_of(done.source) &&
         std::ranges::all_of(done.plan.steps, &TensorStep::unchanged);
}

// Empty unless refitting improved no attention on the held-out text.
std::string refitted_in_vain(const std::vector<LayerReport>& layers) {
  const auto refitted = [](const LayerReport& layer) { return layer.refinement.has_value(); };
  const auto helped = [](const LayerReport& layer) {
    return layer.refinement && layer.refinement->error_after < layer.refinement->error_before;
  };
  return std::ranges::any_of(layers, refitted) && std::ranges::none_of(layers, helped)
             ? "--refit changed nothing: no attention layer came closer to the source's on the "
               "held-out tenth of the text; more text (--refit-tokens) or a smaller --refit-lr may "
               "help"
             : "";
}

}  // namespace

Table held_out_rows(const HeldOut& report) {
  const std::vector<HeldOutModel> models = report.models.value_or(std::vector<HeldOutModel>{});
  const bool predicts =
      std::ranges::any_of(models, [](const HeldOutModel& row) { return row.loss.has_value(); });
  Table table;
  table.add_texts({"model"});
  if (predicts) {
    table.add_numbers({"loss", "perplexity", "divergence"});
  }
  if (report.own_tokens) {
    table.add_numbers({"on own text"});
  }
  table.add_numbers({"cosine to source"});
  for (const HeldOutModel& row : models) {
    std::vector<std::string> cells{row.model.value_or("?")};
    if (predicts) {
      cells.push_back(decimals_of(row.loss));
      cells.push_back(row.loss ? text_of_perplexity(*row.loss) : "-");
      cells.push_back(decimals_of(row.divergence));
    }
    if (report.own_tokens) {
      cells.push_back(decimals_of(row.own_divergence));
    }
    cells.push_back(decimals_of(row.cosine));
    table.add_row(cells);
  }
  return table;
}

Table layers_table(const std::vector<LayerReport>& layers) {
  Table table(/*keys=*/2);
  table.add_texts({"attention"});
  table.add_numbers({"layer", "K energy kept", "V energy kept", "K norm", "V norm"});
  for (const LayerReport& layer : layers) {
    if (!layer.groups.empty() && layer.over_text) {
      table.add_row({std::string(name_of(layer.role)), std::to_string(layer.layer),
                     percent(keys_kept(layer)), percent(values_kept(layer)),
                     fmt::format("{:.3f}", mean_over(layer.groups, &GroupReport::key_norm)),
                     fmt::format("{:.3f}", mean_over(layer.groups, &GroupReport::value_norm))});
    }
  }
  return table;
}

Json groupings_json(const std::vector<LayerGrouping>& groupings) {
  return json_list(groupings, [](const LayerGrouping& layer) -> Json {
    return {{"attention", name_of(layer.role)},
            {"layer", layer.layer},
            {"energy_kept", kept_by_similar(layer)},
            {"energy_kept_contiguous", kept_by_neighbours(layer)}};
  });
}

std::string grouping_text(const std::vector<LayerGrouping>& groupings) {
  return groupings.empty() ? ""
                           : fmt::format("similar heads keep {} of the energy, neighbours {}",
                                         percent(mean_over(groupings, kept_by_similar)),
                                         percent(mean_over(groupings, kept_by_neighbours)));
}

std::vector<std::string> conversion_warnings(const ConversionReport& done) {
  const ConversionPlan& plan = done.plan;
  std::vector<std::string> warnings = plan.spec.contradictions;
  if (!plan.config_text.empty() && !is_single_file(plan.container)) {
    const Json config = parse_json_object(plan.config_text, "config.json");
    if (!has_alibi_names(config)) {
      append(warnings, runtime_warnings({config, plan.target}));
    }
  }
  if (plan.request.positions != PositionChange::kKeep) {
    warnings.emplace_back(
        "the result is not usable before uptraining: ALiBi's slopes replace the positions that the "
        "model has learned, and predictions may be no better than chance");
  }
  if (pooled_layers(plan).empty()) {
    warnings.push_back(is_copy(done) ? fmt::format("no tensor changes: the source has {}, and the "
                                                   "result is a copy",
                                                   text_of_heads(plan.spec.kv_heads, "kv head"))
                                     : "");
    append(warnings, warnings_in(record_of(done.source)));  // the heads are the same
  } else {
    warnings.push_back(of_unadapted_heads(done));
    warnings.push_back(refitted_in_vain(done.layers));
  }
  if (!is_single_file(plan.container) && plan.files.empty()) {  // else made of the source's
    warnings.push_back(text_of_left_tokenizer(done.source));
  }
  warnings.push_back(done.held_out ? text_of_lost_knowledge(*done.held_out) : "");
  std::erase(warnings, "");
  return warnings;
}

}  // namespace regroup

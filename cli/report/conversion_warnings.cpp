#include "cli/report/conversion_warnings.h"

#include <fmt/format.h>

#include "converter/target/runtimes.h"
#include "formats/families/family.h"

namespace regroup {
namespace {

// Whether calibrate supports the model, and lowrank can use its statistics.
bool can_calibrate(const ModelSpec& spec) {
  return spec.not_computable.empty() && !spec.attention_only() && !spec.clip_qkv;
}

// The option that gives a better result; empty if it would not.
std::string better_option(const ConversionPlan& plan) {
  return can_calibrate(plan.spec)
             ? "; --text FILE, with a text that the model should do well on, loses far less"
             : "";
}

std::string without_statistics(const ConversionPlan& plan) {
  return fmt::format(
      "--pool {} without --text or --calibration uses only the weights, not their inputs on a "
      "text: "
      "on real models it can lose as much as the mean does{}",
      name_of(plan.pooling.method), better_option(plan));
}

std::string of_plain_heads(const ConversionPlan& plan) {
  return fmt::format(
      "--pool {}: heads of trained models have little in common, so the result may be almost "
      "useless until it is uptrained{}",
      name_of(plan.pooling.method), better_option(plan));
}

// Empty unless refitting improved no attention on the held-out text.
std::string refitted_in_vain(const std::vector<LayerReport>& layers) {
  bool any = false, helped = false;
  for (const LayerReport& layer : layers) {
    any = any || layer.refinement;
    helped = helped ||
             (layer.refinement && layer.refinement->error_after < layer.refinement->error_before);
  }
  return any && !helped
             ? "--refit changed nothing: no attention came closer to the source's on the held-out "
               "tenth of the text; more text (--refit-tokens) or a smaller --refit-lr may help"
             : "";
}

}  // namespace

std::vector<std::string> conversion_warnings(const ConversionPlan& plan,
                                             const std::vector<LayerReport>& layers) {
  std::vector<std::string> warnings;
  if (!plan.config_text.empty() && !is_single_file(plan.container)) {
    const Json config = parse_json_object(plan.config_text, "config.json");
    if (!has_alibi_names(config)) {
      warnings = runtime_warnings({config, plan.target});
    }
  }
  if (pooled_layers(plan).empty()) {
    return warnings;
  }
  const PoolMethod method = plan.pooling.method;
  if (needs_solver(method) && !plan.calibration) {
    warnings.push_back(without_statistics(plan));
  } else if (!needs_solver(method) && !plan.refiner) {
    warnings.push_back(of_plain_heads(plan));
  }
  warnings.push_back(refitted_in_vain(layers));
  std::erase(warnings, "");
  return warnings;
}

}  // namespace regroup

#include "uptrain/trainer/recipe_differences.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/json/printable_json.h"

namespace regroup {
namespace {

struct SettingOption {
  std::string_view setting, option;
};

// The options that have another name than their setting.
constexpr SettingOption kOptions[] = {
    {"accumulation", "--accumulate"},
    {"attention_weight", "--distill-attention"},
    {"data_bytes", "--data"},
    {"data_digest", "--data"},
    {"data_weights", "--data"},
    {"document_end", "--documents"},
    {"document_start", "--documents"},
    {"documents_digest", "--data"},
    {"eval_data_digest", "--eval-data"},
    {"first_sentinel", "--first-sentinel"},
    {"found_learning_rate", "--lr"},
    {"learning_rate", "--lr"},
    {"max_gradient_norm", "--clip"},
    {"min_learning_rate_ratio", "--min-lr-ratio"},
    {"precision", "--dtype"},
    {"sequence_length", "--context"},
    {"teacher_precision", "--teacher-dtype"},
    {"teacher_temperature", "--temperature"},
    {"teacher_top", "--teacher-logits"},
    {"trained", "--train"},
    {"version", "--version"},
    {"warmup_steps", "--warmup"},
};

std::string option_of(std::string_view setting) {
  const auto* found = std::ranges::find(kOptions, setting, &SettingOption::setting);
  if (found != std::end(kOptions)) {
    return std::string(found->option);
  }
  std::string option = "--" + std::string(setting);
  std::ranges::replace(option, '_', '-');
  return option;
}

std::string value_in_words(const Json& recipe, const std::string& setting) {
  const Json value = recipe.value(setting, Json());
  return value.is_null() ? "none" : printable_json(value);
}

}  // namespace

std::string recipe_differences(const Json& first, const Json& second, std::string_view form) {
  Json all = first;
  all.update(second);
  std::vector<std::string> found;
  for (const auto& [key, unused] : all.items()) {
    if (!first.contains(key) || !second.contains(key) || first[key] != second[key]) {
      found.push_back(fmt::format(fmt::runtime(form), key, value_in_words(first, key),
                                  value_in_words(second, key)) +
                      fmt::format(" ({})", option_of(key)));
    }
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

}  // namespace regroup

#include "uptrain/train/rank_agreement.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"

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

void check_same_on_all(ProcessGroup& group, const Json& asked) {
  const std::vector<std::string> all = group.exchange(asked.dump());
  const Json first = Json::parse(all.front());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const Json other = Json::parse(all[rank]);
    const std::string differences =
        recipe_differences(other, first, "{} is {} there, {} on rank 0");
    if (!differences.empty()) {
      throw_usage("rank {} was started with other settings: {}", rank, differences);
    }
  }
}

std::string fault_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& fault) {
    return fault.what();
  }
}

std::string first_fault(ProcessGroup* group, const std::string& own) {
  if (group == nullptr) {
    return own;
  }
  const std::vector<std::string> faults = group->exchange(own);
  for (std::size_t rank = 0; rank < faults.size(); ++rank) {
    if (!faults[rank].empty()) {
      return rank == 0 ? faults[rank] : fmt::format("rank {}: {}", rank, faults[rank]);
    }
  }
  return {};
}

std::optional<Evaluation> evaluation_of_all(const ProcessGroup& group,
                                            const std::optional<Evaluation>& own) {
  const auto tokens = static_cast<double>(own ? own->tokens : 0);
  const double loss = own ? own->loss * tokens : 0.0;
  const at::Tensor sums =
      group.sum(at::tensor({loss, tokens, own ? 0.0 : 1.0}, at::kDouble)).to(at::kCPU);
  const auto* values = sums.const_data_ptr<double>();
  if (values[2] != 0.0) {
    return std::nullopt;
  }
  Evaluation whole;
  whole.tokens = static_cast<std::int64_t>(values[1]);
  whole.loss = values[0] / values[1];
  whole.perplexity = std::exp(whole.loss);
  return whole;
}

std::optional<TrainingProgress> progress_of_first(ProcessGroup& group,
                                                  const std::optional<TrainingProgress>& own) {
  const Json text = own ? json_of(*own) : Json();
  const Json first = Json::parse(group.exchange(text.dump()).front());
  return first.is_null() ? std::nullopt : std::optional(progress_in(first, "rank 0"));
}

}  // namespace regroup

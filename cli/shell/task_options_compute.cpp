#include "cli/shell/task_options.h"

#include <fmt/format.h>

#include "cli/shell/command.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/quantity.h"

namespace regroup {

TaskSettings TaskOptions::settings() const {
  TaskSettings settings{.mask_token = mask_token};
  settings.end_token = end_token;
  if (!objective.empty()) {
    settings.objective = parse_objective(objective);
  }
  if (first_sentinel) {
    settings.sentinels = Sentinels{.first = *first_sentinel};
  }
  return settings;
}

void add_task_options(Command command, TaskOptions& options, const std::string& default_objective) {
  command
      .add_option("--objective", options.objective,
                  "encoder-decoders: span-corruption (T5's), text-infilling (BART's), or "
                  "continuation (the second half of a sequence given the first) (default: " +
                      default_objective + ")")
      .one_of({"next-token", "masked-tokens", "continuation", "span-corruption", "text-infilling"});
  add_count(command, "--first-sentinel", options.first_sentinel,
            "span corruption: the id of <extra_id_0> (default: the tokenizer's)", kAnyToken);
  add_count(command, "--end-token", options.end_token,
            "span corruption, text infilling: the token that ends a text (default: the config's)",
            kAnyToken);
  add_count(command, "--mask-token", options.mask_token,
            "BERT-like models, text infilling: the id of [MASK] or <mask> (default: the config's, "
            "for text infilling also the tokenizer's)",
            kAnyToken);
}

void check_task_options(const TaskOptions& options, Objective objective) {
  const auto check = [&](const char* option, bool given, Objective needed,
                         std::optional<Objective> other) {
    if (given && objective != needed && objective != other) {
      refuse_without_effect(
          option, fmt::format("the objective is {}, not {}{}", name_of(objective), name_of(needed),
                              other ? fmt::format(" or {}", name_of(*other)) : ""));
    }
  };
  constexpr Objective kInfilling = Objective::kTextInfilling;
  check("--mask-token", options.mask_token.has_value(), Objective::kMaskedTokens, kInfilling);
  check("--first-sentinel", options.first_sentinel.has_value(), Objective::kSpanCorruption, {});
  check("--end-token", options.end_token.has_value(), Objective::kSpanCorruption, kInfilling);
}

}  // namespace regroup

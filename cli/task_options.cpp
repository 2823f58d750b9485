#include "cli/task_options.h"

#include <CLI/CLI.hpp>

namespace regroup {

TaskSettings TaskOptions::settings() const {
  TaskSettings settings{.mask_token = mask_token};
  settings.end_token = end_token;
  if (!objective.empty()) {
    settings.objective = parse_objective(objective);
  }
  if (first_sentinel >= 0) {
    settings.sentinels = Sentinels{.first = first_sentinel};
  }
  return settings;
}

void add_task_options(CLI::App& command, TaskOptions& options) {
  command.add_option("--objective", options.objective,
                     "encoder-decoders: span-corruption (default) or continuation, the second half "
                     "of a sequence after the first");
  command
      .add_option("--first-sentinel", options.first_sentinel,
                  "span corruption: the id of <extra_id_0> (default: the tokenizer's)")
      ->check(CLI::NonNegativeNumber)
      ->default_str("");
  command.add_option("--end-token", options.end_token,
                     "span corruption: what ends a text (default: the config's)");
  command.add_option("--mask-token", options.mask_token,
                     "BERT-like models: the id of [MASK] or <mask> (default: the config's)");
}

}  // namespace regroup

#include "cli/shell/option_needs.h"

#include <algorithm>
#include <array>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

constexpr std::array kNeeds = std::to_array<OptionNeed>({
    {"convert", "--attention --pool --grouping --allow-nonfinite --refit --measure --text --sample",
     "--kv-heads --kv-budget"},
    {"convert", "--pool-seed", "--pool=random"},
    {"convert", "--calibration", "--pool=lowrank --grouping=similar --measure --text --sample"},
    {"convert", "--tokenizer --jsonl --field", "--text"},
    {"convert", "--allow-any-text", "--text --refit --kv-budget"},
    {"convert", "--effort --own-text --distill-steps --distill-lr --distill-attention --resume",
     "--text --sample"},
    {"convert", "--kv-budget-data --kv-budget-tokens", "--kv-budget"},
    {"convert", "--refit-steps --refit-tokens --refit-lr", "--refit --text --sample"},
    {"convert", "--refit-batch --refit-context", "--refit --kv-budget --text --sample"},
    {"convert", "--device",
     "--refit --kv-budget --pool=lowrank --grouping=similar --measure --text --sample"},
    {"calibrate", "--tokenizer --jsonl --field", "--text"},
    {"inspect", "--filter --sort", "--tensors --stats"},
    {"inspect", "--conversion --run", "--html"},
    {"verify", "--data --context --max-tokens --device --threads", "--logits"},
    {"sample", "--context --batch --first-token --chats", "--output"},
    {"sample", "--plain", "--prompt"},
    {"sample", "--tokenizer", "--prompt --chats"},
    {"eval", "--tokenizer --jsonl --field", "--text"},
    {"eval", "--document-end --document-start", "--documents=separate"},
    {"teach", "--document-end --document-start", "--documents=separate"},
    {"uptrain", "--tokenizer --jsonl --field", "--text"},
    {"uptrain", "--document-end --document-start", "--documents=separate"},
    {"uptrain", "--min-lr-ratio", "--schedule=cosine,wsd"},
    {"uptrain", "--decay-steps", "--schedule=wsd"},
    {"uptrain", "--start-step", "--schedule=inverse-sqrt"},
    {"uptrain", "--beta1 --beta2 --epsilon --moments", "--optimizer=adamw"},
    {"uptrain", "--scale-by-parameter", "--optimizer=adafactor"},
    {"uptrain", "--pretrain-steps --pretrain-tokens", "--alpha"},
    {"uptrain", "--teacher-weight --temperature", "--teacher --teacher-logits"},
    {"uptrain", "--teacher-dtype --distill-attention", "--teacher"},
    {"uptrain", "--other-teacher", "--teacher-logits"},
    {"uptrain", "--eval-every --eval-max-tokens", "--eval-data"},
    {"uptrain", "--replicate", "--shard=full"},
    {"uptrain", "--ranks", "--dry-run"},
    {"uptrain", "--ranks-per-machine", "--ranks"},
    {"bench train", "--moments", "--optimizer=adamw"},
    {"bench decode", "--sinks", "--window"},
});

// One of the alternatives: an option, and the values that meet the need; empty: any.
struct Condition {
  std::string_view option;
  std::vector<std::string_view> values;
};

std::vector<Condition> conditions_of(const OptionNeed& need) {
  std::vector<Condition> conditions;
  for (const std::string_view part : split(need.any_of, ' ')) {
    const std::size_t equals = part.find('=');
    Condition condition{part.substr(0, equals), {}};
    if (equals != part.npos) {
      condition.values = split(part.substr(equals + 1), ',');
    }
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

// The last value given, or the default.
std::string value_of(const CLI::Option& option) {
  return option.count() > 0 ? option.results().back() : option.get_default_str();
}

bool holds(const CLI::App& command, const Condition& condition) {
  const CLI::Option* option = command.get_option_no_throw(std::string(condition.option));
  if (option == nullptr) {
    return false;
  }
  if (condition.values.empty()) {
    return option->count() > 0;
  }
  const std::string value = value_of(*option);
  return std::find(condition.values.begin(), condition.values.end(), value) !=
         condition.values.end();
}

bool names(const OptionNeed& need, std::string_view option) {
  const auto options = split(need.options, ' ');
  return contains(options, option);
}

void check_values(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& value :
         option->count() > 0 ? option->results() : std::vector<std::string>()) {
      if (value.empty() && option->get_items_expected_max() > 0) {
        throw_usage("{}: an empty value", option->get_name());
      }
    }
  }
}

void check_needs(const CLI::App& command, const std::string& path) {
  for (const OptionNeed& need : kNeeds) {
    if (need.command != path) {
      continue;
    }
    const auto conditions = conditions_of(need);
    const bool met = std::any_of(conditions.begin(), conditions.end(),
                                 [&](const Condition& each) { return holds(command, each); });
    for (const std::string_view option : split(need.options, ' ')) {
      if (!met && command.count(std::string(option)) > 0) {
        throw_usage("{} has no effect without {}", option, text_of_need(need));
      }
    }
  }
}

}  // namespace

std::span<const OptionNeed> option_needs() { return kNeeds; }

std::string text_of_need(const OptionNeed& need) {
  std::vector<std::string> alternatives;
  for (const Condition& condition : conditions_of(need)) {
    alternatives.push_back(fmt::format("{}{}{}", condition.option,
                                       condition.values.empty() ? "" : " ",
                                       fmt::join(condition.values, " or ")));
  }
  const std::string last = alternatives.back();
  alternatives.pop_back();
  return alternatives.empty() ? last : fmt::format("{} or {}", fmt::join(alternatives, ", "), last);
}

std::string text_of_needs(std::string_view command, std::string_view option) {
  const auto found = std::find_if(kNeeds.begin(), kNeeds.end(), [&](const OptionNeed& need) {
    return need.command == command && names(need, option);
  });
  return found == kNeeds.end() ? "" : text_of_need(*found);
}

void check_options(const CLI::App& program) {
  check_values(program);
  if (program.count("--json-progress") > 0 && program.count("--quiet") > 0) {
    refuse_without_effect("--json-progress", "--quiet prints no progress");
  }
  std::string path;
  for (auto chosen = program.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    path += (path.empty() ? "" : " ") + chosen.front()->get_name();
    check_values(*chosen.front());
    check_needs(*chosen.front(), path);
  }
}

void refuse_without_effect(std::string_view option, std::string_view why) {
  throw_usage("{} has no effect: {}", option, why);
}

}  // namespace regroup

#include "cli/shell/option_needs.h"

#include <algorithm>
#include <array>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/shell/command.h"
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
  return mapped(split(need.any_of, ' '), [](std::string_view part) -> Condition {
    const std::size_t equals = part.find('=');
    return {part.substr(0, equals), equals == part.npos ? std::vector<std::string_view>()
                                                        : split(part.substr(equals + 1), ',')};
  });
}

// The last value given, or the default.
std::string value_of(const CLI::Option& option) {
  return option.results().empty() ? option.get_default_str() : option.results().back();
}

bool holds(const CLI::App& command, const Condition& condition) {
  const CLI::Option* option = command.get_option_no_throw(std::string(condition.option));
  if (option == nullptr) {
    return false;
  }
  if (condition.values.empty()) {
    return option->count() > 0;
  }
  return contains(condition.values, value_of(*option));
}

void check_values(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty() && option->get_items_expected_max() > 0) {
        std::string name = option->get_name();
        if (!name.starts_with('-')) {  // arguments have capitals in the help
          std::ranges::transform(name, name.begin(), ::toupper);
        }
        throw_usage("{}: an empty value", name);
      }
    }
  }
}

void check_needs(const CLI::App& command) {
  const std::string path = path_of(command);
  for (const OptionNeed& need : kNeeds) {
    const auto is_met = [&](const Condition& condition) { return holds(command, condition); };
    if (need.command != path || std::ranges::any_of(conditions_of(need), is_met)) {
      continue;
    }
    for (const std::string_view option : split(need.options, ' ')) {
      if (command.count(std::string(option)) > 0) {
        throw_usage("{} has no effect without {}", option, text_of_need(need));
      }
    }
  }
}

}  // namespace

std::span<const OptionNeed> option_needs() { return kNeeds; }

std::string text_of_need(const OptionNeed& need) {
  auto alternatives = mapped(conditions_of(need), [](const Condition& condition) {
    return fmt::format("{}{}{}", condition.option, condition.values.empty() ? "" : " ",
                       fmt::join(condition.values, " or "));
  });
  const std::string last = alternatives.back();
  alternatives.pop_back();
  return alternatives.empty() ? last : fmt::format("{} or {}", fmt::join(alternatives, ", "), last);
}

std::string text_of_needs(std::string_view command, std::string_view option) {
  const auto found = std::ranges::find_if(kNeeds, [&](const OptionNeed& need) {
    return need.command == command && contains(split(need.options, ' '), option);
  });
  return found == kNeeds.end() ? "" : text_of_need(*found);
}

void check_options(const CLI::App& program) {
  check_values(program);
  if (program.count("--json-progress") > 0 && program.count("--quiet") > 0) {
    refuse_without_effect("--json-progress", "--quiet prints no progress");
  }
  for (auto chosen = program.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    check_values(*chosen.front());
    check_needs(*chosen.front());
  }
}

void refuse_without_effect(std::string_view option, std::string_view why) {
  throw_usage("{} has no effect: {}", option, why);
}

}  // namespace regroup

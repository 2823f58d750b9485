#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/report/uptrain_report.h"
#include "cli/shell/text.h"

namespace regroup {
namespace {

// Why a run has its memory mode.
std::string_view reason_of(const MemoryChoice& choice) {
  return !choice.automatic       ? "as given by --memory"
         : !choice.chosen().fits ? "none fits, it needs least"
                                 : "the first that fits";
}

std::vector<std::pair<double, std::string_view>> parts_of(const TrainingMemory& memory) {
  return {{memory.weights, "weights"},         {memory.masters, "masters"},
          {memory.gradients, "gradients"},     {memory.optimizer, "optimizer"},
          {memory.activations, "activations"}, {memory.logits, "logits"},
          {memory.teacher, "teacher"},         {memory.update, "update"}};
}

// "13.1 GiB and 77.4 GiB of the host".
std::string need_text(const MemoryNeed& need) {
  return text_of_bytes(need.device) +
         (need.host > 0 ? fmt::format(" and {} of the host", text_of_bytes(need.host)) : "");
}

// The type of gradients, where it depends on the batches of a step.
std::string_view gradients_text(const UptrainPlan& plan) {
  if (plan.memory_choice.mode != MemoryMode::kCompact) {
    return "";
  }
  return plan.settings.accumulation == 1 ? "; gradients in bf16"
                                         : "; gradients of several batches are summed in fp32";
}

// The memory mode, why, and what the others need; empty if there is only one.
std::string mode_text(const UptrainPlan& plan) {
  const MemoryChoice& choice = plan.memory_choice;
  if (choice.options.size() == 1) {
    return "";
  }
  std::string needs;
  for (const MemoryChoice::Option& option : choice.options) {
    needs += fmt::format("{}{} {}", needs.empty() ? "" : ", ", name_of(option.mode),
                         need_text(option.need));
  }
  return fmt::format("\n          mode {}, {}: {}{}", name_of(choice.mode), reason_of(choice),
                     needs, gradients_text(plan));
}

std::string_view name_of(const Sharding& sharding) {
  return sharding.weights ? "full" : "optimizer";
}

// "full, 4 copies".
std::string text_of(const Sharding& sharding) {
  return fmt::format("{}{}", name_of(sharding),
                     sharding.copies > 1 ? fmt::format(", {} copies", sharding.copies) : "");
}

std::string_view reason_of_sharding(const UptrainPlan& plan) {
  const ShardingChoice& choice = plan.sharding_choice;
  return !choice.automatic                                         ? "as given by --shard"
         : plan.sharding_agreed                                    ? "the first that fits all ranks"
         : !choice.of(plan.settings.sharding).memory.chosen().fits ? "none fits, it needs least"
                                                                   : "the first that fits";
}

Json parts_json(const TrainingMemory& memory) {
  Json parts;
  for (const auto& [bytes, name] : parts_of(memory)) {
    parts[std::string(name)] = bytes;
  }
  return parts;
}

Json leaner_json(const std::optional<MemoryShortage>& shortage) {
  Json list = Json::array();
  for (const LeanerRun& run : shortage.value_or(MemoryShortage{}).leaner) {
    list.push_back({{"options", run.options}, {"memory_bytes", run.bytes}});
  }
  return list;
}

Json modes_json(const MemoryChoice& choice) {
  Json list = Json::array();
  for (const MemoryChoice::Option& option : choice.options) {
    list.push_back({{"mode", name_of(option.mode)},
                    {"memory_bytes", option.need.device},
                    {"host_memory_bytes", option.need.host},
                    {"fits", option.fits}});
  }
  return list;
}

}  // namespace

std::string memory_text(const UptrainPlan& plan) {
  const TrainingMemory& memory = plan.memory;
  std::string parts;
  for (const auto& [bytes, name] : parts_of(memory)) {
    if (bytes > 0) {
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, text_of_bytes(bytes));
    }
  }
  if (memory.not_at_once > 0) {
    parts += fmt::format(", less {} that is not needed at the same time",
                         text_of_bytes(memory.not_at_once));
  }
  const std::optional<double>& free = plan.memory_free.device;
  const std::string available = free ? fmt::format(", {} available", text_of_bytes(*free)) : "";
  return fmt::format("about {}{}\n          {}{}", text_of_bytes(memory.total()), available, parts,
                     mode_text(plan));
}

std::string sharding_text(const UptrainPlan& plan) {
  const Sharding& sharding = plan.settings.sharding;
  std::string needs;
  for (const ShardingChoice::Option& option : plan.sharding_choice.options) {
    needs += fmt::format("{}{} {}", needs.empty() ? ": " : "; ", text_of(option.sharding),
                         need_text(option.memory.chosen().need));
  }
  return fmt::format("{} ({} each), {}{}", text_of(sharding),
                     sharding.weights ? "a part of the weights" : "all weights",
                     reason_of_sharding(plan), plan.sharding_choice.automatic ? needs : "");
}

Json sharding_json(const UptrainPlan& plan) {
  Json list = Json::array();
  for (const ShardingChoice::Option& option : plan.sharding_choice.options) {
    const MemoryChoice::Option& chosen = option.memory.chosen();
    list.push_back({{"shard", name_of(option.sharding)},
                    {"replicate", option.sharding.copies},
                    {"memory_mode", name_of(chosen.mode)},
                    {"memory_bytes", chosen.need.device},
                    {"host_memory_bytes", chosen.need.host},
                    {"fits", chosen.fits}});
  }
  return {{"shard", name_of(plan.settings.sharding)},
          {"replicate", plan.settings.sharding.copies},
          {"shard_reason", reason_of_sharding(plan)},
          {"shard_options", std::move(list)}};
}

Json memory_json(const UptrainPlan& plan) {
  return {{"memory_bytes", plan.memory.total()},
          {"memory", parts_json(plan.memory)},
          {"memory_not_at_once", plan.memory.not_at_once},
          {"memory_available", or_null(plan.memory_free.device)},
          {"memory_mode", name_of(plan.memory_choice.mode)},
          {"memory_reason", reason_of(plan.memory_choice)},
          {"memory_modes", modes_json(plan.memory_choice)},
          {"host_memory_bytes", plan.memory.host},
          {"host_memory_available", or_null(plan.memory_free.host)},
          {"fits", plan.fits()},
          {"leaner", leaner_json(plan.shortage)}};
}

}  // namespace regroup

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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
  const std::string needs = joined(choice.options, ", ", [](const MemoryChoice::Option& option) {
    return fmt::format("{} {}", name_of(option.mode), need_text(option.need));
  });
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
  return json_list(shortage.value_or(MemoryShortage{}).leaner, [](const LeanerRun& run) -> Json {
    return {{"options", run.options}, {"memory_bytes", run.bytes}};
  });
}

Json modes_json(const MemoryChoice& choice) {
  return json_list(choice.options, [](const MemoryChoice::Option& option) -> Json {
    return {{"mode", name_of(option.mode)},
            {"memory_bytes", option.need.device},
            {"host_memory_bytes", option.need.host},
            {"fits", option.fits}};
  });
}

}  // namespace

std::string memory_text(const UptrainPlan& plan) {
  const TrainingMemory& memory = plan.memory;
  auto needed = parts_of(memory);
  std::erase_if(needed, [](const auto& part) { return !(part.first > 0); });
  std::string parts = joined(needed, ", ", [](const auto& part) {
    return fmt::format("{} {}", part.second, text_of_bytes(part.first));
  });
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
  const ShardingChoice& choice = plan.sharding_choice;
  const auto need_of = [](const ShardingChoice::Option& option) {
    return fmt::format("{} {}", text_of(option.sharding), need_text(option.memory.chosen().need));
  };
  return fmt::format("{} ({} each), {}{}", text_of(sharding),
                     sharding.weights ? "a part of the weights" : "all weights",
                     reason_of_sharding(plan),
                     choice.automatic ? ": " + joined(choice.options, "; ", need_of) : "");
}

Json sharding_json(const UptrainPlan& plan) {
  const auto option_json = [](const ShardingChoice::Option& option) -> Json {
    const MemoryChoice::Option& chosen = option.memory.chosen();
    return {{"shard", name_of(option.sharding)},     {"replicate", option.sharding.copies},
            {"memory_mode", name_of(chosen.mode)},   {"memory_bytes", chosen.need.device},
            {"host_memory_bytes", chosen.need.host}, {"fits", chosen.fits}};
  };
  return {{"shard", name_of(plan.settings.sharding)},
          {"replicate", plan.settings.sharding.copies},
          {"shard_reason", reason_of_sharding(plan)},
          {"shard_options", json_list(plan.sharding_choice.options, option_json)}};
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

#include "uptrain/run/planned_memory.h"

#include <algorithm>
#include <optional>
#include <string>

#include "uptrain/model/device.h"
#include "uptrain/model/host_memory.h"
#include "uptrain/run/training_memory.h"

namespace regroup {
namespace {

// Whether the host has memory for a copy of its ranks' parts of the state, in addition to what
// training takes of it. A tenth is left for other processes.
bool has_memory_for_copy(const UptrainPlan& plan) {
  const MemoryNeed& need = plan.memory_choice.chosen().need;
  const double training = plan.settings.device.is_cpu() ? need.device : need.host;
  const std::optional<double> available = available_memory(c10::Device(c10::kCPU));
  const double copies = plan.state_bytes * static_cast<double>(plan.settings.local_ranks) /
                        static_cast<double>(plan.settings.ranks);
  return available && training + copies < 0.9 * *available;
}

}  // namespace

MemoryNeed memory_needed(const UptrainSettings& settings, const ModelSpec& spec,
                         const ModelSpec* teacher, const Task& task, std::int64_t sequence_length) {
  TrainingMemory memory = training_memory(settings, spec, task, sequence_length);
  if (settings.teacher.present() && teacher != nullptr) {
    memory.teacher = teacher_bytes(settings, *teacher, task, sequence_length);
  }
  const auto ranks = static_cast<double>(settings.local_ranks);
  return settings.device.is_cpu() ? MemoryNeed{memory.total() * ranks, 0.0}
                                  : MemoryNeed{memory.total(), memory.host * ranks};
}

void weigh_memory(UptrainPlan& plan, const ModelSpec& spec, const ModelSpec* teacher) {
  const auto need_of = [&](const UptrainSettings& settings) {
    return memory_needed(settings, spec, teacher, plan.task, plan.sequence_length);
  };
  plan.memory_free = free_memory(plan.settings.device);
  plan.memory_choice = choose_memory(plan.settings, plan.memory_free, need_of);
  plan.shortage = shortage_of(plan.settings, plan.memory_choice, plan.memory_free, need_of);
  plan.settings.memory = plan.memory_choice.mode;
  plan.memory = training_memory(plan.settings, spec, plan.task, plan.sequence_length);
  if (teacher != nullptr) {
    plan.memory.teacher = teacher_bytes(plan.settings, *teacher, plan.task, plan.sequence_length);
  }
  plan.background_saving = has_memory_for_copy(plan);
}

void agree_on_memory(UptrainPlan& plan, const ModelSpec& spec, ProcessGroup& group) {
  MemoryMode leanest = plan.memory_choice.mode;
  for (const std::string& mode : group.exchange(std::string(name_of(leanest)))) {
    leanest = std::max(leanest, parse_memory_mode(mode));  // from the most memory to the least
  }
  if (!plan.memory_choice.automatic || leanest == plan.memory_choice.mode) {
    return;
  }
  plan.memory_choice.mode = leanest;
  plan.settings.memory = leanest;
  const double teacher = plan.memory.teacher;
  plan.memory = training_memory(plan.settings, spec, plan.task, plan.sequence_length);
  plan.memory.teacher = teacher;
  plan.background_saving = has_memory_for_copy(plan);
}

}  // namespace regroup

#include "uptrain/run/planned_memory.h"

#include <algorithm>
#include <optional>
#include <string>

#include "formats/base/json.h"
#include "uptrain/model/device.h"
#include "uptrain/run/activation_memory.h"
#include "uptrain/run/training_memory.h"

namespace regroup {
namespace {

// Whether the host has memory for a copy of its ranks' parts of the state, in addition to what
// training takes of it. A tenth is left for other processes.
bool has_memory_for_copy(const UptrainPlan& plan) {
  const MemoryNeed& need = plan.memory_choice.chosen().need;
  const double training = plan.settings.device.is_cpu() ? need.device : need.host;
  const std::optional<double> available = available_memory(c10::Device(c10::kCPU));
  const auto parts = static_cast<double>(plan.settings.sharing_ranks());
  const double here = std::min(static_cast<double>(plan.settings.local_ranks), parts);
  const double copies = plan.state_bytes * here / parts;
  return available && training + copies < 0.9 * *available;
}

void take_memory_mode(UptrainPlan& plan, MemoryMode mode, const ModelSpec& spec,
                      const ModelSpec* teacher) {
  plan.memory_choice.mode = mode;
  plan.settings.memory = mode;
  plan.memory = training_memory(plan.settings, spec, plan.task, plan.sequence_length);
  if (teacher != nullptr) {
    plan.memory.teacher = teacher_bytes(plan.settings, *teacher, plan.task, plan.sequence_length);
  }
  plan.background_saving = has_memory_for_copy(plan);
}

// The sharding that needs the least memory among those that the ranks chose.
Sharding leanest_sharding(const Sharding& own, ProcessGroup& group) {
  Sharding leanest;
  bool first = true;
  for (const std::string& text : group.exchange(Json{own.weights, own.copies}.dump())) {
    const Json other = Json::parse(text);
    const Sharding theirs{.weights = other[0], .copies = other[1]};
    const bool leaner = theirs.weights && (!leanest.weights || theirs.copies < leanest.copies);
    leanest = first || leaner ? theirs : leanest;
    first = false;
  }
  return leanest;
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
  plan.sharding_choice = choose_sharding(plan.settings, plan.memory_free, need_of);
  plan.memory_choice = plan.sharding_choice.of(plan.settings.sharding).memory;
  plan.shortage = shortage_of(plan.settings, plan.memory_choice, plan.memory_free, need_of);
  take_memory_mode(plan, plan.memory_choice.mode, spec, teacher);
  plan.traffic = training_traffic(plan.settings, spec, teacher, plan.sequence_length);
}

void agree_on_memory(UptrainPlan& plan, const Model& source, ProcessGroup& group) {
  const std::optional<Model> teacher = plan.settings.teacher.present()
                                           ? std::optional(open_teacher(plan.settings, source))
                                           : std::nullopt;
  const ModelSpec* teacher_spec = teacher ? &teacher->spec : nullptr;
  const Sharding leanest = leanest_sharding(plan.settings.sharding, group);
  if (plan.sharding_choice.automatic && leanest != plan.settings.sharding) {
    plan.settings.sharding = leanest;
    plan.memory_choice = plan.sharding_choice.of(leanest).memory;
    plan.sharding_agreed = true;
    take_memory_mode(plan, plan.memory_choice.mode, source.spec, teacher_spec);
    plan.traffic = training_traffic(plan.settings, source.spec, teacher_spec, plan.sequence_length);
  }
  MemoryMode mode = plan.memory_choice.mode;
  for (const std::string& other : group.exchange(std::string(name_of(mode)))) {
    mode = std::max(mode, parse_memory_mode(other));  // from the most memory to the least
  }
  if (plan.memory_choice.automatic && mode != plan.memory_choice.mode) {
    take_memory_mode(plan, mode, source.spec, teacher_spec);
  }
}

}  // namespace regroup

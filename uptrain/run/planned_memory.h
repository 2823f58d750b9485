// The memory of a planned run, and the mode that fits.
#pragma once

#include <cstdint>

#include "formats/spec/model_spec.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/run/memory_choice.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {

/// Bytes that training takes in the memory mode of `settings` (kFull unless set), including a
/// teacher.
MemoryNeed memory_needed(const UptrainSettings& settings, const ModelSpec& spec,
                         const ModelSpec* teacher, const Task& task, std::int64_t sequence_length);

/// Fills in the memory that the run needs and has, what ranks hold, the memory mode, options that
/// need less, whether states are saved in the background, and what travels between ranks. `teacher`
/// is null without one.
void weigh_memory(UptrainPlan& plan, const ModelSpec& spec, const ModelSpec* teacher);

/// With several ranks, which each planned with the memory of their own device: where sharding or
/// mode were left open, all take the leanest that one of them chose. Every rank must call it.
void agree_on_memory(UptrainPlan& plan, const Model& source, ProcessGroup& group);

}  // namespace regroup

// What training needs in memory: an estimate, made before it starts.
#pragma once

#include <cstdint>

#include "formats/spec/model_spec.h"
#include "uptrain/objective/objective.h"
#include "uptrain/run/uptrain_settings.h"

namespace regroup {

/// Bytes on the device, by what they are for.
struct TrainingMemory {
  double weights = 0.0;      ///< of the model in the type it computes in, trained or not
  double masters = 0.0;      ///< fp32 copies of those that are trained; in fp32 none
  double gradients = 0.0;    ///< their sum in fp32, and those of a batch that is added to it
  double optimizer = 0.0;    ///< what it remembers between steps
  double activations = 0.0;  ///< what a batch keeps for its backward pass
  double logits = 0.0;       ///< the chunk of them that is there at a time
  double teacher = 0.0;      ///< its weights, and what is compared of its attention

  double total() const {
    return weights + masters + gradients + optimizer + activations + logits + teacher;
  }
};

/// An estimate for a model trained on sequences of that length; what the teacher takes is left out.
/// Allocators and libraries come on top.
TrainingMemory training_memory(const UptrainSettings& settings, const ModelSpec& spec,
                               const Task& task, std::int64_t sequence_length);

/// Bytes of a teacher's weights, and where its attention teaches of what both give and how far that
/// is apart.
double teacher_bytes(const UptrainSettings& settings, const ModelSpec& teacher, const Task& task,
                     std::int64_t sequence_length);

/// Bytes of a saved state: masters, and what the optimizer remembers.
double saved_state_bytes(const UptrainSettings& settings, const ModelSpec& spec);

}  // namespace regroup

// The head of a model: what makes predictions of its last hidden states. Checkpoints of base models
// lack it.
#pragma once

#include <string>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// `spec` without the tensors of its head.
ModelSpec without_head(ModelSpec spec);

/// The first tensor of the head that `spec` names where `checkpoint` has none of them. Empty where
/// it has any, and where the head is the token embedding.
std::string missing_head(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup

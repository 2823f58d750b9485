// The output head, which maps the last hidden states to predictions. Checkpoints of base models
// lack it.
#pragma once

#include <string>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// `spec` without its head's tensors.
ModelSpec without_head(ModelSpec spec);

/// The first head tensor that `spec` names, if `checkpoint` has none of them. Empty if it has any,
/// or if the head is tied to the token embedding.
std::string missing_head(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup

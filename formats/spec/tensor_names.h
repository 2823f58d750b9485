// Names of tensors, and which of them is the output's projection.
#pragma once

#include <functional>
#include <string>

#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// All tensor names in a ModelSpec.

/// Replaces every tensor name in `spec` by `rename(name)`. Empty names stay empty.
void rename_tensors(ModelSpec& spec, const std::function<std::string(const std::string&)>& rename);
void rename_tensors(AttentionLayout& attention,
                    const std::function<std::string(const std::string&)>& rename);

// The output head, which maps the last hidden states to predictions. Checkpoints of base models
// lack it.

/// Decides, as transformers 5 does, which of the tensors that the config ties to the token
/// embedding are tied. One that is stored and differs is not: the output projection is then
/// spec.lm_head, and a model whose encoder or decoder has an embedding of its own is not
/// computable. If only another name of the embedding is stored, that is the embedding. Reads the
/// tensors if several are stored.
void settle_ties(ModelSpec& spec, const Checkpoint& checkpoint);

/// `spec` without its head's tensors.
ModelSpec without_head(ModelSpec spec);

/// The first head tensor that `spec` names, if `checkpoint` has none of them. Empty if it has any,
/// or if the head is tied to the token embedding.
std::string missing_head(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup

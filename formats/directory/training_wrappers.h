// Names of tensors saved from inside a wrapper of training, such as torch.compile's.
#pragma once

#include <vector>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Removes from the names in `parts` what wrappers add: "_orig_mod." (torch.compile),
/// "_fsdp_wrapped_module." (FSDP) and "_checkpoint_wrapped_module." (activation checkpointing) at
/// any depth, then "module." (DDP, DeepSpeed) if every name begins with it. Throws kBadInput for
/// FSDP's flat parameters, which are not tensors of the model.
void remove_training_wrappers(std::vector<Checkpoint::Part>& parts);

}  // namespace regroup

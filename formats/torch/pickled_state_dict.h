// The tensors of a pickled state dict, by name.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "formats/torch/unpickler.h"

namespace regroup {

using NamedPickledTensors = std::vector<std::pair<std::string_view, PickledTensor>>;

/// The tensors of a pickled state dict, in its order and under views of the pickle; what else
/// stands in it is passed over. Where the dict has an entry "state_dict" or "model" that is a dict
/// itself, that one is read. `where` (a file name) opens error messages. Throws kBadInput for an
/// opcode or global off the allowlist, for a pickle that is cut off or makes no sense, for a name
/// that stands twice, and for a pickle without tensors.
NamedPickledTensors read_state_dict(std::string_view pickle, std::string_view where);

/// read_state_dict() of a pickle that was loaded, out of the value `root` that it made.
NamedPickledTensors tensors_of(const Unpickler& unpickler, const Unpickler::Value& root,
                               std::string_view where);

}  // namespace regroup

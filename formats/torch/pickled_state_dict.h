// Reads the named tensors of a pickled state dict.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "formats/torch/unpickler.h"

namespace regroup {

using NamedPickledTensors = std::vector<std::pair<std::string_view, PickledTensor>>;

/// Returns the tensors of a pickled state dict in order; names are views of `pickle`. Other entries
/// are ignored. If the dict has an entry "state_dict" or "model" that is a dict, that one is read
/// instead. Error messages begin with `where` (a file name). Throws kBadInput for an opcode or
/// global that is not on the allowlist, a truncated or malformed pickle, a duplicate name, and a
/// pickle without tensors.
NamedPickledTensors read_state_dict(std::string_view pickle, std::string_view where);

/// The same for a pickle that is already loaded; `root` is the value it produced.
NamedPickledTensors tensors_of(const Unpickler& unpickler, const Unpickler::Value& root,
                               std::string_view where);

}  // namespace regroup

#include "formats/directory/training_wrappers.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr std::string_view kWrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                          "_checkpoint_wrapped_module."};
constexpr std::string_view kParallel = "module.";

// A wrapper's name is a whole part of the name, between dots.
void remove_everywhere(std::string& name, std::string_view wrapper) {
  std::size_t at = name.find(wrapper);
  while (at != std::string::npos) {
    const bool whole = at == 0 || name[at - 1] == '.';
    if (whole) {
      name.erase(at, wrapper.size());
    }
    at = name.find(wrapper, whole ? at : at + 1);
  }
}

void refuse_flat(const Checkpoint::Part& part, const TensorInfo& tensor) {
  if (tensor.name.ends_with("_flat_param")) {
    throw_bad_input(
        "{}: tensor {}: FSDP's flat parameters are not the model's tensors: save the model with a "
        "full state dict (StateDictType.FULL_STATE_DICT)",
        printable(part.file.path().string(), 0), printable(tensor.name));
  }
}

}  // namespace

void remove_training_wrappers(std::vector<Checkpoint::Part>& parts) {
  bool parallel = true;
  for (Checkpoint::Part& part : parts) {
    for (TensorInfo& tensor : part.tensors) {
      refuse_flat(part, tensor);
      for (const std::string_view wrapper : kWrappers) {
        remove_everywhere(tensor.name, wrapper);
      }
      parallel = parallel && tensor.name.starts_with(kParallel);
    }
  }
  for (Checkpoint::Part& part : parts) {
    for (TensorInfo& tensor : part.tensors) {
      tensor.name.erase(0, parallel ? kParallel.size() : 0);
    }
  }
}

}  // namespace regroup

#include "formats/spec/head.h"

namespace regroup {

ModelSpec without_head(ModelSpec spec) {
  spec.head_transform = {};
  spec.head_norm = {};
  spec.lm_head.clear();
  spec.lm_head_bias.clear();
  return spec;
}

std::string missing_head(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::string first;
  for (const std::string& name :
       {spec.head_transform.weight, spec.head_transform.bias, spec.head_norm.weight,
        spec.head_norm.bias, spec.lm_head, spec.lm_head_bias}) {
    if (!name.empty() && checkpoint.find(name) != nullptr) {
      return "";
    }
    first = first.empty() ? name : first;
  }
  return first;
}

}  // namespace regroup

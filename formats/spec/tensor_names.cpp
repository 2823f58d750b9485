#include "formats/spec/tensor_names.h"

#include <fmt/format.h>

#include "formats/base/printable.h"
#include "formats/tensors/tensor_reader.h"

namespace regroup {

namespace {

void apply(const std::function<std::string(const std::string&)>& rename, std::string& name) {
  if (!name.empty()) {
    name = rename(name);
  }
}

}  // namespace

void rename_tensors(LayerTensors& layer,
                    const std::function<std::string(const std::string&)>& rename) {
  for_each_tensor(layer, [&](std::string& name, ModelPart) { apply(rename, name); });
}

void rename_tensors(ModelSpec& spec, const std::function<std::string(const std::string&)>& rename) {
  for_each_tensor_of_model(spec, [&](std::string& name, ModelPart) { apply(rename, name); });
  apply(rename, spec.tied_head);
  for (auto* names : {&spec.idle_position_tensors, &spec.tied_lookups}) {
    for (std::string& name : *names) {
      apply(rename, name);
    }
  }
}

void settle_ties(ModelSpec& spec, const Checkpoint& checkpoint) {
  std::vector<std::string> tied = spec.tied_lookups;
  tied.push_back(spec.tied_head);
  std::erase_if(tied, [&](const auto& name) { return checkpoint.find(name) == nullptr; });
  if (!tied.empty() && checkpoint.find(spec.token_embedding) == nullptr) {
    spec.token_embedding = tied.front();
  }
  for (const std::string& name : tied) {
    if (same_contents(checkpoint, checkpoint.at(name), checkpoint.at(spec.token_embedding))) {
      continue;
    }
    spec.contradictions.push_back(
        fmt::format("the config ties {} to {}, but they differ: both are used, as in transformers "
                    "5, where older loaders use the second alone",
                    printable(name), printable(spec.token_embedding)));
    if (name == spec.tied_head) {
      spec.lm_head = name;
    } else if (spec.not_computable.empty()) {
      spec.not_computable = fmt::format("{} differs from {}", name, spec.token_embedding);
      spec.loaders_compute = true;
    }
  }
}

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

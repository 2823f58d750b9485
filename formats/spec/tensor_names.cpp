#include "formats/spec/tensor_names.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <vector>

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

bool is_saved_buffer(std::string_view name) {
  constexpr std::string_view kBufferEndings[] = {
      "attn.bias",      "attn.masked_bias",      "attn.causal_mask",
      "attention.bias", "attention.masked_bias", "rotary_emb.inv_freq",
      "rope.freqs",     "rope_freqs.weight",     "embed_positions.weights",
      "attn_rot_embd"};
  return std::ranges::any_of(kBufferEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

namespace {

using NameSet = std::set<std::string_view>;

// What is before the numbers of layers in their tensors' names: "model.layers.".
void add_prefixes(NameSet& prefixes, const std::vector<LayerTensors>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string number = fmt::format(".{}.", i);
    for_each_tensor(layers[i], [&](std::string_view name, ModelPart) {
      if (const std::size_t at = name.find(number); at != std::string_view::npos) {
        prefixes.insert(name.substr(0, at + 1));
      }
    });
  }
}

bool is_in_layers(std::string_view name, const NameSet& prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) {
    const std::string_view rest = name.substr(std::min(prefix.size(), name.size()));
    const std::size_t digits = rest.find_first_not_of("0123456789");
    return name.starts_with(prefix) && digits > 0 && digits < rest.size() && rest[digits] == '.';
  });
}

}  // namespace

void note_unread_tensors(ModelSpec& spec, const Checkpoint& checkpoint) {
  constexpr std::size_t kShown = 4;
  if (spec.attention_only() || !spec.not_computable.empty() || checkpoint.tensors().empty()) {
    return;  // not described as a whole
  }
  NameSet prefixes;
  add_prefixes(prefixes, spec.layers);
  add_prefixes(prefixes, spec.encoder_layers);
  std::unordered_set<std::string_view> known(spec.idle_position_tensors.begin(),
                                             spec.idle_position_tensors.end());
  for_each_tensor_of_model(spec, [&](std::string_view name, ModelPart) { known.insert(name); });
  std::vector<std::string> unread;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (is_in_layers(tensor.name, prefixes) && !known.contains(tensor.name) &&
        !is_saved_buffer(tensor.name)) {
      unread.push_back(printable(tensor.name));
    }
  }
  if (!unread.empty()) {
    spec.contradictions.push_back(
        fmt::format("{} with these settings has no place for {} of the layers' tensors, which are "
                    "left unused: {}",
                    printable(spec.architecture), unread.size(), first_of(unread, kShown)));
  }
}

ModelSpec without_head(ModelSpec spec) {
  spec.head_transform = {};
  spec.head_norm = {};
  spec.lm_head.clear();
  spec.lm_head_bias.clear();
  return spec;
}

std::string text_of_lost_head(const Json& config, std::string_view missing) {
  const auto named = config.find("architectures");
  if (missing.empty() || named == config.end() || !named->is_array() || named->empty() ||
      !named->front().is_string()) {
    return "";
  }
  const auto name = named->front().get<std::string>();
  return name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel")
             ? fmt::format(
                   "config.json names {}, and {} is in none of the files: loaders make an "
                   "output head of random numbers, or refuse the model",
                   printable(name), printable(missing))
             : "";
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

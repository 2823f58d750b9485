#include "formats/families/layout_tensors.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "formats/base/printable.h"

namespace regroup {

namespace {

// "a.b.c.weight", "a.b.d.weight" -> "a.b."
std::string_view common_module(std::string_view a, std::string_view b) {
  const auto length = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const std::size_t dot = a.substr(0, length).rfind('.');
  return dot == std::string_view::npos ? std::string_view() : a.substr(0, dot + 1);
}

// The module that contains the key tensor and another tensor of the same attention.
std::string_view module_of_keys(const AttentionLayout& attention) {
  const bool separate = attention.packing == Packing::kSeparate;
  return common_module(attention.k.weight, separate ? attention.v.weight : attention.o.weight);
}

// The innermost modules of a name: "a.b.k_norm.weight" -> "a.b.k_norm.", "a.b.", "a.".
std::vector<std::string_view> modules_of(std::string_view name) {
  constexpr std::size_t kInnermost = 4;
  std::vector<std::string_view> modules;
  for (std::size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = name.rfind('.', dot - 1)) {
    modules.push_back(name.substr(0, dot + 1));
    if (modules.size() == kInnermost) {
      break;
    }
  }
  return modules;
}

// Whether a part of the name, between dots or underscores, refers to keys: "k_norm",
// "layer_norm_k", "key_layernorm", "knorm", "qk_norm".
bool goes_by_keys(std::string_view name) {
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("._"), name.size());
    const std::string_view word = name.substr(0, end);
    if (word == "k" || word == "kv" || word.starts_with("key") || word.starts_with("knorm") ||
        word.starts_with("qk")) {
      return true;
    }
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return false;
}

}  // namespace

std::vector<std::pair<std::string_view, std::string>> tensors_by_role(
    const AttentionLayout& attention) {
  std::vector<std::pair<std::string_view, std::string>> found;
  const auto add = [&](std::string_view weight, std::string_view bias, const auto& part) {
    found.emplace_back(weight, part.weight);
    found.emplace_back(bias, part.bias);
  };
  if (attention.packing == Packing::kSeparate) {
    add("q", "q_bias", attention.q);
    add("k", "k_bias", attention.k);
    add("v", "v_bias", attention.v);
  } else {
    add("qkv", "qkv_bias", attention.q);
  }
  add("o", "o_bias", attention.o);
  for (const NormTensors& norm : attention.q_norms) {
    add("q_norm", "q_norm_bias", norm);
  }
  for (const NormTensors& norm : attention.k_norms) {
    add("k_norm", "k_norm_bias", norm);
  }
  std::erase_if(found, [](const auto& entry) { return entry.second.empty(); });
  return found;
}

std::string tensor_named_twice(const ModelSpec& spec) {
  std::map<std::string, std::pair<std::string_view, std::size_t>> owners;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    for (const auto& [role, name] : tensors_by_role(spec.layers[i].attention)) {
      const auto [place, is_new] = owners.emplace(name, std::pair(role, i));
      if (!is_new) {
        const auto [other, layer] = place->second;
        return fmt::format(
            "tensor {} is {} of layer {} and {} of layer {}; packing describes tensors with "
            "several roles",
            printable(name), other, layer, role, i);
      }
    }
  }
  return "";
}

const TensorInfo* forgotten_tensor_of_keys(const ModelSpec& source, const ModelSpec& target,
                                           const Checkpoint& checkpoint) {
  std::unordered_set<std::string> named;
  std::unordered_map<std::string_view, std::int64_t> features;  // of the keys, by module
  for (const AttentionRole role : source.roles()) {
    for (std::size_t i = 0; i < source.stack(role).size(); ++i) {
      const AttentionLayout& attention = source.attention(role, i);
      for (auto& [part, name] : tensors_by_role(attention)) {
        named.insert(std::move(name));
      }
      if (attention.present() && source.kv_heads_of(role)[i] != target.kv_heads_of(role)[i]) {
        features[module_of_keys(attention)] = source.kv_heads_of(role)[i] * source.head_dim;
      }
    }
  }
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (!is_pooling_dtype(tensor.dtype) || named.contains(tensor.name)) {
      continue;
    }
    const std::string_view name = tensor.name;
    for (const std::string_view module : modules_of(name)) {
      const auto found = features.find(module);
      if (found != features.end() && found->second == tensor.elements() &&
          goes_by_keys(name.substr(module.size()))) {
        return &tensor;
      }
    }
  }
  return nullptr;
}

}  // namespace regroup

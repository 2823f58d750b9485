#include "formats/families/layout_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "formats/base/json.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

constexpr std::size_t kMaxKeyBytes = 255;
constexpr std::size_t kMaxKeyParts = 16;  // configs nested deeper than 64 are refused

constexpr std::array<std::string_view, 24> kKnownKeys{
    "comments", "layers",       "hidden_size", "query_heads", "head_dim",
    "kv_heads", "kv_heads_key", "packing",     "q",           "k",
    "v",        "qkv",          "o",           "q_bias",      "k_bias",
    "v_bias",   "qkv_bias",     "o_bias",      "alibi",       "q_norm",
    "k_norm",   "q_norm_bias",  "k_norm_bias", "input_major"};

// Splits "attn_config.kv_n_heads" into the parts of a path.
std::vector<std::string> path_of(std::string_view dotted) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= dotted.size();) {
    const std::size_t end = std::min(dotted.find('.', begin), dotted.size());
    parts.emplace_back(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

const Json* find_path(const Json& config, const std::vector<std::string>& path) {
  const Json* at = &config;
  for (const std::string& part : path) {
    const auto found = at->is_object() ? at->find(part) : at->end();
    if (!at->is_object() || found == at->end() || found->is_null()) {
      return nullptr;
    }
    at = &*found;
  }
  return at;
}

LayoutValues::LayoutValues(const Json& config, const Json& layout)
    : config_(config), layout_(layout) {
  for (const auto& [key, value] : layout_.items()) {
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), key) == kKnownKeys.end()) {
      fault("unknown key {}", printable(key));
    }
  }
}

std::optional<std::int64_t> LayoutValues::as_size(std::string_view key, const Json& value,
                                                  std::int64_t most) {
  const bool whole =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() > 0);
  if (!whole || value.get<std::uint64_t>() == 0 ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    fault("{} is {}, a whole number from 1 to {} is needed", key, printable_json(value), most);
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

std::vector<std::string> LayoutValues::config_key(std::string_view key, std::string_view dotted) {
  std::vector<std::string> path;
  if (dotted.size() <= kMaxKeyBytes) {
    path = path_of(dotted);
  }
  const bool has_empty = std::find(path.begin(), path.end(), "") != path.end();
  if (path.empty() || path.size() > kMaxKeyParts || has_empty) {
    fault(
        "{} names the config key {}, at most {} bytes and {} parts between dots are allowed, none "
        "of them empty",
        key, printable(dotted, 60), kMaxKeyBytes, kMaxKeyParts);
    path.clear();
  }
  return path;
}

std::int64_t LayoutValues::size(std::string_view key, std::int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) {
    fault("{} is missing", key);
    return 0;
  }
  if (!value->is_string()) {
    return as_size(key, *value, most).value_or(0);
  }
  const auto path = config_key(key, value->get_ref<const std::string&>());
  if (path.empty()) {
    return 0;
  }
  const Json* in_config = find_path(config_, path);
  if (in_config == nullptr) {
    fault("{}: config.json has no {}", key, printable_json(*value));
    return 0;
  }
  return as_size(key, *in_config, most).value_or(0);
}

std::string LayoutValues::text(std::string_view key, const std::string& absent) {
  const Json* value = find(key);
  if (value != nullptr && !value->is_string()) {
    fault("{} is {}, a string is needed", key, printable_json(*value));
    return absent;
  }
  return value == nullptr ? absent : value->get<std::string>();
}

bool LayoutValues::flag(std::string_view key) {
  const Json* value = find(key);
  if (value != nullptr && !value->is_boolean()) {
    fault("{} is {}, true or false is needed", key, printable_json(*value));
  }
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string LayoutValues::name_pattern(std::string_view key) {
  std::string pattern = text(key, "");
  if (!pattern.empty() && pattern.find(kLayerPlaceholder) == std::string::npos) {
    fault("{} does not hold {}", printable_json(pattern), kLayerPlaceholder);
  }
  return pattern;
}

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

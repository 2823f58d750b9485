#include "formats/layout_files/layout_values.h"

#include <algorithm>
#include <array>

#include "formats/base/printable.h"
#include "formats/json/printable_json.h"

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

}  // namespace regroup

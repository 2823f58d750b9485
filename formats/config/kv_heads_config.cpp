#include "formats/config/kv_heads_config.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/json/json.h"

namespace regroup {
namespace {

// Whether all values are the same number.
bool is_one_number(const std::vector<std::int64_t>& values) {
  return !values.empty() &&
         std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

std::string list_json(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace

std::string config_with_kv_heads(const std::string& config_text, const ModelSpec& spec,
                                 const std::vector<std::int64_t>& kv_heads) {
  if (!spec.layer_configs_key.empty()) {
    return with_each_element(
        config_text, spec.layer_configs_key, [&](std::size_t layer, std::string_view text) {
          const bool attends = layer < kv_heads.size() && kv_heads[layer] > 0;
          if (attends && !text.starts_with('{')) {
            throw_bad_input("config.json: {}[{}] is no object",
                            fmt::join(spec.layer_configs_key, "."), layer);
          }
          return attends ? with_member(text, spec.heads_per_group_key,
                                       std::to_string(spec.query_heads / kv_heads[layer]))
                         : std::string(text);
        });
  }
  const std::string value =
      spec.kv_heads_always_listed ? list_json(kv_heads) : per_layer_json(kv_heads);
  std::string text = with_member(config_text, spec.kv_heads_key, value);
  for (const std::vector<std::string>& copy : spec.kv_heads_copies) {
    text = with_member(text, copy, value);
  }
  return text;
}

std::string per_layer_json(const std::vector<std::int64_t>& values) {
  return is_one_number(values) ? std::to_string(values.front()) : list_json(values);
}

std::string kv_heads_json(const ModelSpec& spec) {
  if (!spec.has_encoder()) {
    return per_layer_json(spec.kv_heads);
  }
  std::vector<std::string> members;
  for (const AttentionRole role : spec.roles()) {
    members.push_back(
        fmt::format("\"{}\": {}", name_of(role), per_layer_json(spec.kv_heads_of(role))));
  }
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

}  // namespace regroup

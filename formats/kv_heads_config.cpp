#include "formats/kv_heads_config.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "formats/error.h"
#include "formats/json.h"

namespace regroup {

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
  const bool uniform =
      std::adjacent_find(kv_heads.begin(), kv_heads.end(), std::not_equal_to<>()) == kv_heads.end();
  const bool one_number = uniform && !kv_heads.empty() && !spec.kv_heads_always_listed;
  return with_member(config_text, spec.kv_heads_key,
                     one_number ? std::to_string(kv_heads.front())
                                : fmt::format("[{}]", fmt::join(kv_heads, ", ")));
}

}  // namespace regroup

#include "converter/convert/provenance.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/spec/config_writers.h"
#include "formats/version.h"

namespace regroup {

namespace {

template <typename T>
bool all_equal(const std::vector<T>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

bool all_are(const std::vector<std::int64_t>& values, std::int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v == value; });
}

std::string slopes_json(const ModelSpec& spec, AttentionRole role = AttentionRole::kSelf) {
  const auto slopes = alibi_slopes_per_layer(spec, role);
  return all_equal(slopes) ? nlohmann::json(slopes.front()).dump() : nlohmann::json(slopes).dump();
}

// The permutation of the source's query heads per layer, null for the identity.
std::string query_order_json(const Provenance& facts) {
  if (facts.order.empty()) {
    return "null";
  }
  Json roles = Json::object();
  for (const AttentionRole role : facts.source.roles()) {
    Json layers = Json::array();
    for (std::size_t i = 0; i < facts.source.stack(role).size(); ++i) {
      layers.push_back(facts.order.heads(role, i, facts.source.query_heads));
    }
    roles[std::string(name_of(role))] = std::move(layers);
  }
  return facts.source.has_encoder() ? roles.dump() : roles.front().dump();
}

bool stored_repeatedly(const Provenance& facts) {
  const auto roles = facts.grouped.roles();
  return std::any_of(roles.begin(), roles.end(), [&](AttentionRole role) {
    return facts.target.kv_heads_of(role) != facts.grouped.kv_heads_of(role);
  });
}

// The optional facts of a conversion, as keys and JSON texts.
std::vector<std::pair<std::string, std::string>> occasional_facts(const Provenance& facts) {
  const auto quoted = [](std::string_view text) { return nlohmann::json(text).dump(); };
  std::vector<std::pair<std::string, std::string>> found = facts.more;
  if (stored_repeatedly(facts)) {
    found.emplace_back("stored_kv_heads", kv_heads_json(facts.target));
  }
  if (facts.source.architecture != facts.target.architecture) {
    found.emplace_back("source_architecture", quoted(facts.source.architecture));
  }
  if (facts.source.positions != facts.grouped.positions) {
    found.emplace_back("source_positions", quoted(name_of(facts.source.positions)));
    found.emplace_back("positions", quoted(name_of(facts.grouped.positions)));
  }
  if (!facts.history.empty()) {
    found.emplace_back(kHistoryKey, facts.history.dump());
  }
  return found;
}

// The "regroup" block of config.json as JSON text, with config.json's indentation.
std::string regroup_block(const Provenance& facts) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string block = fmt::format(
      "{{\n    \"version\": {},\n    \"source_kv_heads\": {},\n    \"kv_heads\": {},\n"
      "    \"pool\": {},\n    \"grouping\": {},\n    \"query_order\": {}",
      quoted(std::string(kVersion)), kv_heads_json(facts.source), kv_heads_json(facts.grouped),
      quoted(facts.pool), quoted(facts.grouping), query_order_json(facts));
  for (const auto& [key, value] : occasional_facts(facts)) {
    block += fmt::format(",\n    {}: {}", quoted(key), value);
  }
  if (facts.target.positions == PositionKind::kAlibi) {
    const std::string encoder =
        facts.target.has_encoder() ? fmt::format(", \"encoder_slopes\": {}",
                                                 slopes_json(facts.target, AttentionRole::kEncoder))
                                   : "";
    block +=
        fmt::format(",\n    \"alibi\": {{\"bias_max\": {}, \"slopes\": {}{}}}",
                    json_number(facts.target.alibi.bias_max), slopes_json(facts.target), encoder);
  }
  return block + "\n  }";
}

}  // namespace

std::string config_with_provenance(const std::string& config_text, const Provenance& facts) {
  const ModelSpec& spec = facts.target;
  std::string text = config_text;
  for (const AttentionRole role : spec.roles()) {
    const std::vector<std::int64_t>& heads = spec.kv_heads_of(role);
    // If a family's loaders have no such key, it is written only if it differs from the default.
    const bool said_before = facts.source.kv_heads_of(role) != heads;
    if (spec.loaders_read_kv_heads || !all_are(heads, spec.query_heads) ||
        (said_before && !all_are(facts.source.kv_heads_of(role), spec.query_heads))) {
      text = role == AttentionRole::kSelf
                 ? config_with_kv_heads(text, spec, heads)
                 : with_member(text, spec.kv_heads_key_of(role), per_layer_json(heads));
    }
  }
  if (!spec.multi_query_key.empty()) {
    std::vector<std::string> path = spec.config_path;
    path.push_back(spec.multi_query_key);
    text = with_member(text, path, all_are(spec.kv_heads, 1) ? "true" : "false");
  }
  return with_member(text, {kRecordKey}, regroup_block(facts));
}

std::map<std::string, std::string> metadata_with_provenance(
    std::map<std::string, std::string> metadata, const Provenance& facts) {
  const ModelSpec& spec = facts.target;
  std::erase_if(metadata, [](const auto& entry) { return is_conversion_fact(entry.first); });
  metadata["regroup.version"] = kVersion;
  metadata["regroup.architecture"] = spec.architecture;
  metadata["regroup.query_heads"] = std::to_string(spec.query_heads);
  metadata["regroup.head_dim"] = std::to_string(spec.head_dim);
  metadata["regroup.source_kv_heads"] = kv_heads_json(facts.source);
  metadata["regroup.kv_heads"] = kv_heads_json(facts.grouped);
  metadata["regroup.pool"] = facts.pool;
  metadata["regroup.grouping"] = facts.grouping;
  if (!facts.order.empty()) {
    metadata["regroup.query_order"] = query_order_json(facts);
  }
  for (const auto& [key, value] : occasional_facts(facts)) {
    metadata["regroup." + key] = value;
  }
  if (spec.positions == PositionKind::kAlibi) {
    metadata["regroup.alibi_bias_max"] = json_number(spec.alibi.bias_max);
    metadata["regroup.alibi_slopes"] = slopes_json(spec);
    if (spec.has_encoder()) {
      metadata["regroup.alibi_encoder_slopes"] = slopes_json(spec, AttentionRole::kEncoder);
    }
  }
  return metadata;
}

namespace {

double energy_kept(const LayerReport& layer, double GroupReport::* kept,
                   double GroupReport::* share) {
  double lost = 0.0;
  for (const GroupReport& group : layer.groups) {
    lost += group.*share * (1.0 - group.*kept);
  }
  return 1.0 - lost;
}

// Rounds numbers to six digits, because further digits differ between machines.
std::string short_text(const Json& layer) {
  Json rounded = layer;
  for (auto& [key, value] : rounded.items()) {
    if (value.is_number_float()) {
      value = Json::parse(fmt::format("{:.6g}", value.get<double>()), nullptr, false);
    }
  }
  return rounded.dump();
}

}  // namespace

double keys_kept(const LayerReport& layer) {
  return energy_kept(layer, &GroupReport::key_energy, &GroupReport::key_share);
}

double values_kept(const LayerReport& layer) {
  return energy_kept(layer, &GroupReport::value_energy, &GroupReport::value_share);
}

Json json_of(const LayerReport& layer) {
  Json json{{"attention", name_of(layer.role)}, {"layer", layer.layer}};
  if (!layer.groups.empty() && layer.over_text) {
    json["key_energy_kept"] = keys_kept(layer);
    json["value_energy_kept"] = values_kept(layer);
  }
  if (layer.refinement) {
    json["output_error_before_refit"] = layer.refinement->error_before;
    json["output_error_after_refit"] = layer.refinement->error_after;
    json["refit_learning_rate"] = layer.refinement->learning_rate;
  }
  return json;
}

std::string config_with_layers(const std::string& config_text,
                               const std::vector<LayerReport>& layers) {
  std::string lines;
  for (const LayerReport& layer : layers) {
    if (!layer.over_text && !layer.refinement) {
      continue;
    }
    lines += fmt::format("{}\n      {}", lines.empty() ? "" : ",", short_text(json_of(layer)));
  }
  return lines.empty()
             ? config_text
             : with_member(config_text, {kRecordKey, kLayersKey}, "[" + lines + "\n    ]");
}

namespace {

using Heads = std::vector<std::int64_t>;

bool is_permutation_of(std::int64_t count, Heads heads) {
  std::sort(heads.begin(), heads.end());
  return heads == HeadOrder().heads(AttentionRole::kSelf, 0, count);
}

// The order of query heads in a JSON list, or none if it is not a permutation.
Heads heads_in(const Json& recorded, std::int64_t count) {
  const auto is_head = [&](const Json& value) {
    return value.is_number_unsigned() &&
           value.get<std::uint64_t>() < static_cast<std::uint64_t>(count);
  };
  if (!recorded.is_array() || !std::all_of(recorded.begin(), recorded.end(), is_head)) {
    return {};
  }
  Heads heads = recorded.get<Heads>();
  return is_permutation_of(count, heads) ? heads : Heads{};
}

// The order of kv heads. Every `readers`-th query head determines one.
Heads kv_heads_of(const Heads& query_heads, std::int64_t readers) {
  Heads kv_heads;
  for (std::size_t i = 0; i < query_heads.size(); i += static_cast<std::size_t>(readers)) {
    kv_heads.push_back(query_heads[i] / readers);
  }
  return kv_heads;
}

bool set_layer(HeadOrder& order, const ModelSpec& source, AttentionRole role, std::size_t layer,
               const Json& recorded) {
  const Heads queries = heads_in(recorded, source.query_heads);
  if (queries.empty() || queries == HeadOrder().heads(role, layer, source.query_heads)) {
    return !queries.empty();  // also in layers without kv heads
  }
  const std::int64_t count = source.kv_heads_of(role)[layer];
  Heads kv_heads = count > 0 ? kv_heads_of(queries, source.query_heads / count) : Heads{};
  if (!is_permutation_of(count, kv_heads)) {
    return false;
  }
  order.set(role, layer, std::move(kv_heads));
  return order.heads(role, layer, source.query_heads) == queries;
}

}  // namespace

HeadOrder recorded_order(const Json& recorded, const ModelSpec& source, const std::string& where) {
  HeadOrder order;
  if (recorded.is_null()) {
    return order;
  }
  for (const AttentionRole role : source.roles()) {
    const std::string key(name_of(role));
    const Json layers = !source.has_encoder()  ? recorded
                        : recorded.is_object() ? recorded.value(key, Json(nullptr))
                                               : Json(nullptr);
    const std::size_t count = source.stack(role).size();
    if (!layers.is_array() || layers.size() != count) {
      throw_bad_input("{}: recorded query_order: a list of {} {} layers is needed", where, count,
                      name_of(role));
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!set_layer(order, source, role, i, layers[i])) {
        throw_bad_input(
            "{}: recorded query_order of {} layer {} is {}: a permutation of {} query heads that "
            "keeps those of a kv head together is needed",
            where, name_of(role), i, printable_json(layers[i]), source.query_heads);
      }
    }
  }
  return order;
}

}  // namespace regroup

#include "converter/provenance/recorded_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/printable_json.h"

namespace regroup {
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

#include "cli/report/conversion_facts.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "cli/terminal/text.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"

namespace regroup {
namespace {

using Record = std::map<std::string, std::string>;

// The text under `key`; if it is a JSON string, the value of that string.
std::string text_at(const Record& record, const std::string& key) {
  const auto found = record.find(key);
  if (found == record.end()) {
    return "";
  }
  const Json value = Json::parse(found->second, nullptr, false);
  return printable(value.is_string() ? value.get<std::string>() : found->second);
}

Json json_at(const Record& record, const std::string& key) {
  const auto found = record.find(key);
  const Json value = found == record.end() ? Json() : Json::parse(found->second, nullptr, false);
  return value.is_discarded() ? Json() : value;
}

// Kv heads in words: one number, a list per layer, or for encoder-decoders one of these per role.
std::string heads_in(const Json& heads) {
  if (heads.is_object()) {
    std::string text;
    for (const auto& [role, counts] : heads.items()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(role), heads_in(counts));
    }
    return text;
  }
  const bool listed = heads.is_array() && !heads.empty() &&
                      std::all_of(heads.begin(), heads.end(),
                                  [](const Json& count) { return count.is_number_integer(); });
  return listed                      ? text_of_heads(heads.get<std::vector<std::int64_t>>())
         : heads.is_number_integer() ? std::to_string(heads.get<std::int64_t>())
                                     : "?";
}

bool is_pooled(const Record& record) {
  return json_at(record, "source_kv_heads") != json_at(record, "kv_heads");
}

std::string number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number() ? "?"
         : found->is_number_unsigned()                ? with_thousands(found->get<std::uint64_t>())
                                                      : fmt::format("{:g}", found->get<double>());
}

std::string calibration_of(const Record& record) {
  const Json tokens = json_at(record, "calibration_tokens");
  return record.contains("calibration")
             ? fmt::format(
                   "{} tokens (statistics {})",
                   tokens.is_number_unsigned() ? with_thousands(tokens.get<std::uint64_t>()) : "?",
                   text_at(record, "calibration"))
             : "none";
}

std::string refit_of(const Record& record) {
  const Json refit = json_at(record, "refit");
  return refit.is_object()
             ? fmt::format("{} steps of {} tokens on each attention, on a text of {} tokens",
                           number_of(refit, "steps"), number_of(refit, "tokens_per_step"),
                           number_of(refit, "tokens"))
             : "none";
}

std::string distillation_of(const Record& record) {
  const Json recipe = json_at(record, "distill");
  return recipe.is_object()
             ? fmt::format("{} steps of {} windows of {} tokens on all layers together",
                           number_of(recipe, "steps"), number_of(recipe, "batch"),
                           number_of(recipe, "context"))
             : "";
}

// Tells how many layers have their heads in another order than the source; empty if none has.
std::string moved_heads(const Record& record) {
  std::size_t layers = 0, moved = 0;
  const auto count = [&](const Json& orders) {
    for (const Json& order : orders) {
      ++layers;
      moved += order.is_array() && !std::is_sorted(order.begin(), order.end()) ? 1 : 0;
    }
  };
  const Json orders = json_at(record, "query_order");
  if (orders.is_object()) {
    for (const Json& role : orders) {
      count(role);
    }
  } else if (orders.is_array()) {
    count(orders);
  }
  return moved == 0 ? "" : fmt::format("heads moved in {} of {} layers", moved, layers);
}

std::string change_of(const Record& record, const std::string& before, const std::string& after) {
  return record.contains(before)
             ? fmt::format("{} -> {}", text_at(record, before), text_at(record, after))
             : "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> conversion_facts(const Record& record) {
  if (!record.contains("pool")) {
    return {};
  }
  const bool pooled = is_pooled(record);
  const std::string kv_heads = heads_in(json_at(record, "kv_heads"));
  const std::string moved = moved_heads(record);
  std::vector<std::pair<std::string, std::string>> facts{
      {"kv heads",
       pooled ? fmt::format("{} -> {}", heads_in(json_at(record, "source_kv_heads")), kv_heads)
              : kv_heads + ", as in the source"}};
  if (record.contains("stored_kv_heads")) {
    facts.emplace_back("stored as", heads_in(json_at(record, "stored_kv_heads")) +
                                        " kv heads: some are stored several times");
  }
  if (pooled) {
    const std::string seed =
        record.contains("pool_seed") ? ", seed " + text_at(record, "pool_seed") : "";
    facts.emplace_back("pooling", text_at(record, "pool") + seed);
    facts.emplace_back("grouping",
                       text_at(record, "grouping") + (moved.empty() ? "" : ", " + moved));
    facts.emplace_back("calibration", calibration_of(record));
    facts.emplace_back("refit", refit_of(record));
    facts.emplace_back("distillation", distillation_of(record));
  }
  facts.emplace_back("architecture", change_of(record, "source_architecture", "architecture"));
  facts.emplace_back("positions", change_of(record, "source_positions", "positions"));
  facts.emplace_back("source", text_at(record, "source_fingerprint"));
  facts.emplace_back("converted by", "regroup " + text_at(record, "version"));
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

std::string conversion_text(const Record& record) {
  if (!record.contains("pool")) {
    return "";
  }
  const std::string by = "by regroup " + text_at(record, "version");
  const std::string kv_heads = heads_in(json_at(record, "kv_heads"));
  if (!is_pooled(record)) {
    return record.contains("stored_kv_heads")
               ? fmt::format("{} kv heads, stored as {}, {}", kv_heads,
                             heads_in(json_at(record, "stored_kv_heads")), by)
               : fmt::format("{} kv heads, as in the source, {}", kv_heads, by);
  }
  const std::string distilled = distillation_of(record);
  return fmt::format("from {} kv heads to {} ({}, {}) {}\ncalibration {}; refit {}{}",
                     heads_in(json_at(record, "source_kv_heads")), kv_heads,
                     text_at(record, "pool"), text_at(record, "grouping"), by,
                     calibration_of(record), refit_of(record),
                     distilled.empty() ? "" : "; distillation " + distilled);
}

}  // namespace regroup

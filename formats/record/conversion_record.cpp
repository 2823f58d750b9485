#include "formats/record/conversion_record.h"

#include <algorithm>
#include <array>
#include <utility>

namespace regroup {
namespace {

constexpr std::size_t kMostSteps = 32;
constexpr std::size_t kMostFactBytes = 1024;
constexpr std::size_t kMostHistoryBytes = 64U << 10;

// Text that metadata holds need not be UTF-8.
std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The facts of one step that its successors keep.
Json kept_facts(const Json& facts) {
  constexpr std::array<std::string_view, 6> kDropped{kHistoryKey,   kTrainingKey,  kLayersKey,
                                                     kChecksumsKey, "query_order", "alibi"};
  Json kept = Json::object();
  for (const auto& [key, value] : facts.items()) {
    const std::string text = dumped(value);
    if (text.size() <= kMostFactBytes &&
        std::find(kDropped.begin(), kDropped.end(), key) == kDropped.end()) {
      kept[key] = Json::parse(text);
    }
  }
  return kept;
}

std::uint64_t left_out_of(const Json& step) {
  const Json& count = member_of(step, kLeftOutKey);
  return count.is_number_unsigned() ? count.get<std::uint64_t>() : 0;
}

// Leaves out the oldest steps until the rest is small enough.
Json bounded(const Json& all) {
  std::vector<Json> steps(all.begin(), all.end());
  std::uint64_t left_out = 0;
  if (!steps.empty() && steps.front().contains(kLeftOutKey)) {
    left_out = left_out_of(steps.front());
    steps.erase(steps.begin());
  }
  std::size_t kept = 0;
  std::size_t bytes = 0;
  for (auto step = steps.rbegin(); step != steps.rend() && kept < kMostSteps; ++step, ++kept) {
    bytes += dumped(*step).size();
    if (bytes > kMostHistoryBytes) {
      break;
    }
  }
  left_out += steps.size() - kept;
  Json list = Json::array();
  if (left_out > 0) {
    list.push_back({{kLeftOutKey, left_out}});
  }
  for (auto step = steps.end() - static_cast<std::ptrdiff_t>(kept); step != steps.end(); ++step) {
    list.push_back(std::move(*step));
  }
  return list;
}

}  // namespace

const Json& member_of(const Json& object, std::string_view key) {
  static const Json kAbsent;
  if (!object.is_object()) {
    return kAbsent;
  }
  const auto found = object.find(key);
  return found == object.end() ? kAbsent : *found;
}

bool is_conversion_fact(std::string_view key) {
  return key.starts_with(kRecordPrefix) && key != kSourceConfigKey && key != kSourceDtypesKey;
}

bool is_known_fact(std::string_view name) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"version", "source_kv_heads", "kv_heads", "stored_kv_heads", "pool", "pool_seed",
       "pool_device", "grouping", "query_order", "calibration", "calibration_tokens",
       kCalibrationKeptKey, "refit", kDistillKey, kDistilledKey, "dtype", "source_architecture",
       "source_positions", "positions", "alibi", kSourceFingerprintKey, kLayersKey, kHeldOutKey,
       kChecksumsKey, kTrainingKey, kHistoryKey,
       // as metadata alone, where the config is not beside them:
       "architecture", "query_heads", "head_dim", "alibi_bias_max", "alibi_slopes",
       "alibi_encoder_slopes"});
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Json recorded_fact(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

ConversionRecord::ConversionRecord(Json facts)
    : facts_(facts.is_object() ? std::move(facts) : Json()) {}

ConversionRecord ConversionRecord::in_config(const Json& config) {
  return ConversionRecord(member_of(config, kRecordKey));
}

ConversionRecord ConversionRecord::in_metadata(const std::map<std::string, std::string>& metadata) {
  Json facts;
  for (const auto& [key, value] : metadata) {
    if (is_conversion_fact(key)) {
      facts[key.substr(kRecordPrefix.size())] = recorded_fact(value);
    }
  }
  return ConversionRecord(std::move(facts));
}

const Json& ConversionRecord::at(std::string_view key) const { return member_of(facts_, key); }

Json ConversionRecord::history() const {
  Json steps = Json::array();
  const Json& recorded = at(kHistoryKey);
  if (recorded.is_array()) {
    std::copy_if(recorded.begin(), recorded.end(), std::back_inserter(steps),
                 [](const Json& step) { return step.is_object(); });
  }
  return steps;
}

Json ConversionRecord::steps() const {
  Json steps = history();
  if (converted() && !(trained() && has(kHistoryKey))) {  // otherwise it is in the history
    steps.push_back(kept_facts(facts_));
  }
  if (trained()) {
    steps.push_back({{kTrainingKey, kept_facts(at(kTrainingKey))}});
  }
  return bounded(steps);
}

}  // namespace regroup

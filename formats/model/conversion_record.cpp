#include "formats/model/conversion_record.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
       // Metadata has these for weight files without a config.
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

namespace {

std::string list_of_heads(const Json& list) {
  const bool counts = !list.empty() && std::all_of(list.begin(), list.end(), [](const Json& count) {
    return count.is_number_unsigned();
  });
  if (!counts) {
    return std::string(kNotRecorded);
  }
  const auto heads = list.get<std::vector<std::uint64_t>>();
  const bool uniform = std::all_of(heads.begin(), heads.end(),
                                   [&](std::uint64_t count) { return count == heads.front(); });
  return uniform ? fmt::format("{}", heads.front()) : fmt::format("{}", fmt::join(heads, ", "));
}

std::string text_of_training(const Json& training) {
  std::string text =
      fmt::format("trained in {} steps on {} tokens", plain_count(member_of(training, "steps")),
                  plain_count(member_of(training, "tokens")));
  if (member_of(training, "eval_loss").is_number()) {
    text +=
        fmt::format(", held-out loss {} to {}", plain_loss(member_of(training, "eval_loss_before")),
                    plain_loss(member_of(training, "eval_loss")));
  }
  return text;
}

std::string text_of_conversion(const Json& facts) {
  const Json& before = member_of(facts, "source_kv_heads");
  const Json& after = member_of(facts, "kv_heads");
  if (before == after) {
    const Json& stored = member_of(facts, "stored_kv_heads");
    return fmt::format("converted with its {} kv heads{}", plain_heads(after),
                       stored.is_null() ? "" : ", stored as " + plain_heads(stored));
  }
  std::string more;
  more += facts.contains("refit") ? ", refitted" : "";
  more += member_of(member_of(facts, kDistilledKey), "kept") == true ? ", distilled" : "";
  return fmt::format("converted from {} kv heads to {} ({}, {}{})", plain_heads(before),
                     plain_heads(after), plain_word(member_of(facts, "pool")),
                     plain_word(member_of(facts, "grouping")), more);
}

}  // namespace

std::string plain_word(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  return plain && !text.empty() && text.size() <= 40 ? text : std::string(kNotRecorded);
}

std::string plain_count(const Json& value) {
  return value.is_number_unsigned() ? fmt::format("{}", value.get<std::uint64_t>())
                                    : std::string(kNotRecorded);
}

std::string plain_loss(const Json& value) {
  return value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : std::string(kNotRecorded);
}

std::string plain_heads(const Json& value) {
  if (value.is_object()) {
    std::vector<std::string> roles;
    for (const auto& [role, heads] : value.items()) {
      roles.push_back(fmt::format("{} {}", plain_word(role),
                                  heads.is_object() ? kNotRecorded : plain_heads(heads)));
    }
    return fmt::format("{}", fmt::join(roles, ", "));
  }
  return value.is_array() ? list_of_heads(value) : plain_count(value);
}

std::string text_of_step(const Json& step) {
  if (step.contains(kLeftOutKey)) {
    return fmt::format("{} older steps", plain_count(step[kLeftOutKey]));
  }
  return step.contains(kTrainingKey) ? text_of_training(step[kTrainingKey])
                                     : text_of_conversion(step);
}

std::string text_of_held_out(const Json& held_out) {
  const Json& models = member_of(held_out, "models");
  if (!models.is_array() || models.empty()) {
    return "";
  }
  const bool predicts = member_of(models.front(), "loss").is_number();
  std::vector<std::string> rows;
  for (const Json& row : models) {
    rows.push_back(fmt::format("{} {}", plain_word(member_of(row, "model")),
                               plain_loss(member_of(row, predicts ? "loss" : "cosine"))));
  }
  return fmt::format("{} {} on {} tokens", fmt::join(rows, ", "),
                     predicts ? "nats per token" : "cosine to the source",
                     plain_count(member_of(held_out, "tokens")));
}

std::string text_of_distilled(const Json& distilled) {
  if (!distilled.is_object()) {
    return "";
  }
  const bool predicts = member_of(distilled, "measure") == "kl_divergence";
  return fmt::format("{} {} -> {}{} on held-out text{}",
                     predicts ? "divergence from the source" : "error of last hidden states",
                     plain_loss(member_of(distilled, "before")),
                     plain_loss(member_of(distilled, "after")), predicts ? " nats per token" : "",
                     member_of(distilled, "kept") == true ? "" : "; not better, so it was undone");
}

}  // namespace regroup

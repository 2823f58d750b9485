#include "cli/report/conversion_facts.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/model/conversion_record.h"

namespace regroup {

namespace {

constexpr std::uint64_t kMaxReportBytes = 64U << 20;

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}

std::vector<RecordedLayer> layers_in(const Json& layers, const std::string& where) {
  if (!layers.is_array()) {
    throw_bad_input("{}: layers is a JSON {}, must be a list", where, layers.type_name());
  }
  std::vector<RecordedLayer> found;
  for (const Json& layer : layers) {
    const auto number = layer.is_object() ? number_at(layer, "layer") : std::nullopt;
    if (!number) {
      throw_bad_input("{}: an entry of layers has no number \"layer\"", where);
    }
    found.push_back({text_at(layer, "attention"), *number, number_at(layer, "key_energy_kept"),
                     number_at(layer, "value_energy_kept"),
                     number_at(layer, "output_error_before_refit"),
                     number_at(layer, "output_error_after_refit")});
  }
  return found;
}

}  // namespace

RecordedMeasurements read_measurements(const std::filesystem::path& path) {
  const std::string where = printable(path.string(), 0);
  const Json report = parse_json_object(read_text(path, kMaxReportBytes), where);
  RecordedMeasurements record{
      text_at(report, "source"), text_at(report, "pool"), text_at(report, "grouping"), {}};
  if (!report.contains("pool")) {
    throw_bad_input("{}: no \"pool\": not the output of regroup convert --json", where);
  }
  if (report.contains("layers")) {
    record.layers = layers_in(report["layers"], where);
  }
  return record;
}

std::optional<RecordedMeasurements> measurements_in(const Json& config,
                                                    const std::filesystem::path& path) {
  const ConversionRecord record = ConversionRecord::in_config(config);
  if (!record.has(kLayersKey)) {
    return std::nullopt;
  }
  return RecordedMeasurements{"", text_at(record.facts(), "pool"),
                              text_at(record.facts(), "grouping"),
                              layers_in(record.at(kLayersKey), printable(path.string(), 0))};
}

namespace {

using NamedFacts = std::vector<std::pair<std::string, std::string>>;

// The fact under `key`: a string's value, or JSON.
std::string text_at(const ConversionRecord& record, const char* key) {
  const Json& value = record.at(key);
  return value.is_null()     ? ""
         : value.is_string() ? printable(value.get<std::string>())
                             : printable_json(value);
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

bool is_pooled(const ConversionRecord& record) {
  return record.at("source_kv_heads") != record.at("kv_heads");
}

std::string number_of(const Json& object, const char* key) {
  const Json& value = member_of(object, key);
  return !value.is_number()           ? "?"
         : value.is_number_unsigned() ? with_thousands(value.get<std::uint64_t>())
                                      : fmt::format("{:g}", value.get<double>());
}

std::string calibration_of(const ConversionRecord& record) {
  const Json& tokens = record.at("calibration_tokens");
  return record.has("calibration")
             ? fmt::format(
                   "{} tokens (statistics {})",
                   tokens.is_number_unsigned() ? with_thousands(tokens.get<std::uint64_t>()) : "?",
                   text_at(record, "calibration"))
             : "none";
}

std::string refit_of(const ConversionRecord& record) {
  const Json& refit = record.at("refit");
  return refit.is_object()
             ? fmt::format("{} steps of {} tokens on each attention, on a text of {} tokens",
                           number_of(refit, "steps"), number_of(refit, "tokens_per_step"),
                           number_of(refit, "tokens"))
             : "none";
}

std::string distillation_of(const ConversionRecord& record) {
  const Json& recipe = record.at("distill");
  return recipe.is_object()
             ? fmt::format("{} steps of {} windows of {} tokens on all layers together",
                           number_of(recipe, "steps"), number_of(recipe, "batch"),
                           number_of(recipe, "context"))
             : "";
}

// Tells how many layers have their heads in another order than the source; empty if none has.
std::string moved_heads(const ConversionRecord& record) {
  std::size_t layers = 0, moved = 0;
  const auto count = [&](const Json& orders) {
    for (const Json& order : orders) {
      ++layers;
      moved += order.is_array() && !std::is_sorted(order.begin(), order.end()) ? 1 : 0;
    }
  };
  const Json& orders = record.at("query_order");
  if (orders.is_object()) {
    for (const Json& role : orders) {
      count(role);
    }
  } else if (orders.is_array()) {
    count(orders);
  }
  return moved == 0 ? "" : fmt::format("heads moved in {} of {} layers", moved, layers);
}

std::string change_of(const ConversionRecord& record, const char* before,
                      const std::string& after) {
  return record.has(before) ? fmt::format("{} -> {}", text_at(record, before), after) : "";
}

// The mean over the layers that have this measurement; none if none has.
std::optional<double> mean_of(const Json& layers, const char* key) {
  double sum = 0.0, count = 0.0;
  for (const Json& layer : layers) {
    const Json& value = member_of(layer, key);
    sum += value.is_number() ? value.get<double>() : 0.0;
    count += value.is_number() ? 1.0 : 0.0;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

// Two measurements of layers in one sentence; empty without the first.
std::string means_of(const Json& layers, const char* text, const char* first, const char* second) {
  const auto before = mean_of(layers, first), after = mean_of(layers, second);
  return before ? fmt::format(fmt::runtime(text), 100 * *before, 100 * after.value_or(0.0)) : "";
}

// What was measured of the result, and how it was trained.
void add_measured_facts(NamedFacts& facts, const ConversionRecord& record) {
  const Json& layers = record.at(kLayersKey);
  if (layers.is_array()) {
    facts.emplace_back("kept", means_of(layers, "keys {:.1f} %, values {:.1f} %, mean of layers",
                                        "key_energy_kept", "value_energy_kept"));
    facts.emplace_back(
        "refitted",
        means_of(layers, "error of attention outputs {:.1f} % -> {:.1f} %, mean of layers",
                 "output_error_before_refit", "output_error_after_refit"));
  }
  facts.emplace_back("distilled", text_of_distilled(record.at(kDistilledKey)));
  facts.emplace_back("held out", text_of_held_out(record.at(kHeldOutKey)));
  if (record.has(kChecksumsKey)) {
    const Json& checksums = record.at(kChecksumsKey);
    facts.emplace_back("checksums", checksums.is_object()
                                        ? fmt::format("of {} tensors", checksums.size())
                                        : text_at(record, kChecksumsKey));
  }
  if (record.trained()) {
    facts.emplace_back("training", text_of_step({{kTrainingKey, record.at(kTrainingKey)}}));
  }
}

// Earlier steps, and facts that a later version or a stranger wrote.
void add_other_facts(NamedFacts& facts, const ConversionRecord& record) {
  std::size_t number = 0;
  for (const Json& step : record.history()) {
    facts.emplace_back(fmt::format("step {}", ++number), text_of_step(step));
  }
  for (const auto& [key, value] : record.facts().items()) {
    if (!is_known_fact(key)) {
      facts.emplace_back(printable(key), text_at(record, key.c_str()));
    }
  }
}

void add_head_facts(NamedFacts& facts, const ConversionRecord& record) {
  const std::string kv_heads = heads_in(record.at("kv_heads"));
  facts.emplace_back("kv heads",
                     is_pooled(record)
                         ? fmt::format("{} -> {}", heads_in(record.at("source_kv_heads")), kv_heads)
                         : kv_heads + ", as in the source");
  if (record.has("stored_kv_heads")) {
    facts.emplace_back("stored as", heads_in(record.at("stored_kv_heads")) +
                                        " kv heads: some are stored several times");
  }
}

void add_method_facts(NamedFacts& facts, const ConversionRecord& record) {
  if (!is_pooled(record)) {
    return;
  }
  const std::string moved = moved_heads(record);
  const std::string seed = record.has("pool_seed") ? ", seed " + text_at(record, "pool_seed") : "";
  const std::string device =
      record.has("pool_device") ? ", solved on " + text_at(record, "pool_device") : "";
  facts.emplace_back("pooling", text_at(record, "pool") + seed + device);
  facts.emplace_back("grouping", text_at(record, "grouping") + (moved.empty() ? "" : ", " + moved));
  facts.emplace_back("calibration", calibration_of(record));
  facts.emplace_back("refit", refit_of(record));
  facts.emplace_back("distillation", distillation_of(record));
}

}  // namespace

NamedFacts recorded_measurements(const ConversionRecord& record) {
  NamedFacts facts;
  add_measured_facts(facts, record);
  add_other_facts(facts, record);
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

NamedFacts conversion_facts(const ConversionRecord& record, std::string_view architecture) {
  NamedFacts facts;
  if (record.has("pool")) {
    add_head_facts(facts, record);
    add_method_facts(facts, record);
    facts.emplace_back("architecture",
                       change_of(record, "source_architecture", printable(architecture)));
    facts.emplace_back("positions",
                       change_of(record, "source_positions", text_at(record, "positions")));
    facts.emplace_back("dtype", text_at(record, "dtype"));
    facts.emplace_back("source", text_at(record, kSourceFingerprintKey));
    facts.emplace_back("converted by", "regroup " + text_at(record, "version"));
  }
  for (auto& fact : recorded_measurements(record)) {
    facts.push_back(std::move(fact));
  }
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

std::string conversion_text(const ConversionRecord& record) {
  if (!record.has("pool")) {
    return "";
  }
  const std::string by = "by regroup " + text_at(record, "version");
  const std::string kv_heads = heads_in(record.at("kv_heads"));
  if (!is_pooled(record)) {
    return record.has("stored_kv_heads")
               ? fmt::format("{} kv heads, stored as {}, {}", kv_heads,
                             heads_in(record.at("stored_kv_heads")), by)
               : fmt::format("{} kv heads, as in the source, {}", kv_heads, by);
  }
  const std::string distilled = distillation_of(record);
  return fmt::format("from {} kv heads to {} ({}, {}) {}\ncalibration {}; refit {}{}",
                     heads_in(record.at("source_kv_heads")), kv_heads, text_at(record, "pool"),
                     text_at(record, "grouping"), by, calibration_of(record), refit_of(record),
                     distilled.empty() ? "" : "; distillation " + distilled);
}

}  // namespace regroup

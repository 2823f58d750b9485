#include "cli/report/conversion_facts.h"

#include <algorithm>
#include <cstdint>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/record_words.h"

namespace regroup {
namespace {

// A string's value, or JSON.
std::string shown(const Json& stored) {
  return stored.is_null()     ? ""
         : stored.is_string() ? printable(stored.get<std::string>())
                              : printable_json(stored);
}

std::string calibration_of(const ConversionRecord& record) {
  return record.calibration.recorded() ? fmt::format("{} tokens (statistics {})",
                                                     plain_count(record.calibration_tokens.value),
                                                     shown(record.calibration.stored))
                                       : "none";
}

std::string refit_of(const ConversionRecord& record) {
  const auto& refit = record.refit.value;
  return refit
             ? fmt::format("{} steps of {} tokens on each attention layer, on a text of {} tokens",
                           plain_count(refit->steps), plain_count(refit->tokens_per_step),
                           plain_count(refit->tokens))
             : "none";
}

std::string distillation_of(const ConversionRecord& record) {
  const auto& recipe = record.distill.value;
  return recipe ? fmt::format("{} steps of {} windows of {} tokens on all layers together",
                              plain_count(recipe->steps), plain_count(recipe->batch),
                              plain_count(recipe->context))
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
  const Json& orders = record.query_order.stored;
  if (orders.is_object()) {
    for (const Json& role : orders) {
      count(role);
    }
  } else if (orders.is_array()) {
    count(orders);
  }
  return moved == 0 ? "" : fmt::format("heads moved in {} of {} layers", moved, layers);
}

std::string change_of(const Fact<std::string>& before, const std::string& after) {
  return before.recorded() ? fmt::format("{} -> {}", shown(before.stored), after) : "";
}

void add_head_facts(Facts& facts, const ConversionRecord& record) {
  const std::string kv_heads = plain_heads(record.kv_heads.value);
  facts.emplace_back(
      "kv heads", record.pooled()
                      ? fmt::format("{} -> {}", plain_heads(record.source_kv_heads.value), kv_heads)
                      : kv_heads + ", as in the source");
  if (record.stored_kv_heads.recorded()) {
    facts.emplace_back("stored as", plain_heads(record.stored_kv_heads.value, "kv head") +
                                        ": some are stored several times");
  }
}

void add_method_facts(Facts& facts, const ConversionRecord& record) {
  if (!record.pooled()) {
    return;
  }
  const auto also = [](const char* text, const auto& fact) {
    return fact.recorded() ? text + shown(fact.stored) : "";
  };
  const std::string moved = moved_heads(record);
  facts.emplace_back("pooling", shown(record.pool.stored) + also(", seed ", record.pool_seed) +
                                    also(", solved on ", record.pool_device));
  facts.emplace_back("grouping",
                     shown(record.grouping.stored) + (moved.empty() ? "" : ", " + moved));
  facts.emplace_back("calibration", calibration_of(record));
  facts.emplace_back("refit", refit_of(record));
  facts.emplace_back("distillation", distillation_of(record));
}

using Layers = std::vector<RecordedLayer>;

// "layer 3", or "encoder layer 3" if the model has several kinds of attention.
std::string place_of(const RecordedLayer& layer, const Layers& layers) {
  const bool several =
      std::ranges::count(layers, layer.attention, &RecordedLayer::attention) < std::ssize(layers);
  return fmt::format("{}{}layer {}", several ? printable(layer.attention.value_or("")) : "",
                     several ? " " : "", layer.layer.value_or(0));
}

// The layers that have both numbers.
Layers with_numbers(Layers layers, std::optional<double> RecordedLayer::* first,
                    std::optional<double> RecordedLayer::* second) {
  std::erase_if(layers, [&](const auto& layer) { return !(layer.*first && layer.*second); });
  return layers;
}

std::string held_out_of(const ConversionRecord& record) {
  const auto held_out = shown_held_out(record);
  const std::string text = held_out ? text_of_held_out(*held_out) : "";
  return text.empty() || !record.trained() ? text : text + ", before the training";
}

}  // namespace

RecordedMeasurements read_measurements(const std::filesystem::path& path) {
  constexpr std::uint64_t kMaxReportBytes = 64U << 20;
  const std::string where = printable_path(path);
  const Json report = parse_json_object(read_text(path, kMaxReportBytes), where);
  if (!report.contains("pool")) {
    throw_bad_input("{}: no \"pool\": not the output of regroup convert --json", where);
  }
  const Json& source = member_of(report, "source");
  return {source.is_string() ? source.get<std::string>() : "",
          report.contains("layers") ? layers_in(report["layers"], where)
                                    : std::vector<RecordedLayer>()};
}

std::optional<RecordedMeasurements> measurements_in(const Json& config,
                                                    const std::filesystem::path& path) {
  const auto layers = ConversionRecord::in_config(config).layers;
  if (!layers.recorded()) {
    return std::nullopt;
  }
  RecordedMeasurements found;
  found.layers = layers_in(layers.stored, printable_path(path));
  return found;
}

std::string text_of_kept(const Layers& layers) {
  const Layers measured =
      with_numbers(layers, &RecordedLayer::key_energy, &RecordedLayer::value_energy);
  if (measured.empty()) {
    return "";
  }
  const RecordedLayer& worst = *std::ranges::min_element(
      measured, {}, [](const auto& layer) { return *layer.key_energy + *layer.value_energy; });
  return fmt::format(
      "{:.1f} % of the energy (sum of squares) of keys, {:.1f} % of values, mean of pooled layers; "
      "{} keeps least of both together: {:.1f} %, {:.1f} %",
      100 * *mean_of(measured, &RecordedLayer::key_energy),
      100 * *mean_of(measured, &RecordedLayer::value_energy), place_of(worst, layers),
      100 * *worst.key_energy, 100 * *worst.value_energy);
}

std::string text_of_refitted(const Layers& layers) {
  const Layers measured =
      with_numbers(layers, &RecordedLayer::error_before, &RecordedLayer::error_after);
  if (measured.empty()) {
    return "";
  }
  const RecordedLayer& worst = *std::ranges::max_element(measured, {}, &RecordedLayer::error_after);
  return fmt::format(
      "squared error of attention outputs {:.1f} % -> {:.1f} %, mean of layers; most in {}: {:.1f} "
      "%",
      100 * *mean_of(measured, &RecordedLayer::error_before),
      100 * *mean_of(measured, &RecordedLayer::error_after), place_of(worst, layers),
      100 * *worst.error_after);
}

Facts recorded_measurements(const ConversionRecord& record) {
  const Layers layers = record.layers.value.value_or(Layers());
  const ConversionRecord pooling = with_pooling(record);
  const auto& checksums = record.checksums;
  Facts facts{
      {"kept", text_of_kept(layers)},
      {"refitted", text_of_refitted(layers)},
      {"distilled", pooling.distilled.value ? text_of_distilled(*pooling.distilled.value) : ""},
      {"held out", held_out_of(pooling)},
      {"checksums", checksums.value ? fmt::format("of {} tensors", checksums.value->size())
                                    : shown(checksums.stored)},
      {"training", record.trained() ? text_of_training(*record.training.value) : ""}};
  std::size_t number = 0;
  for (const Json& step : record.earlier_steps()) {
    facts.emplace_back(fmt::format("earlier {}", ++number), text_of_step(step));
  }
  for (const auto& [key, value] : record.unknown()) {
    facts.emplace_back(printable(key), shown(value));
  }
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

Facts conversion_facts(const ConversionRecord& record, std::string_view architecture) {
  Facts facts;
  if (record.pool.recorded()) {
    add_head_facts(facts, record);
    add_method_facts(facts, record);
    const std::string source = shown(record.source_fingerprint.stored);
    facts.insert(facts.end(),
                 {{"architecture", change_of(record.source_architecture, printable(architecture))},
                  {"positions", change_of(record.source_positions, shown(record.positions.stored))},
                  {"dtype", shown(record.dtype.stored)},
                  {"source", source.empty() ? "" : "fingerprint " + source},
                  {"converted by", "regroup " + shown(record.version.stored)}});
  }
  append(facts, recorded_measurements(record));
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

std::string conversion_text(const ConversionRecord& record) {
  if (!record.pool.recorded()) {
    return "";
  }
  const std::string by = "by regroup " + shown(record.version.stored);
  if (!record.pooled()) {
    const std::string kv_heads = plain_heads(record.kv_heads.value, "kv head");
    return record.stored_kv_heads.recorded()
               ? fmt::format("{}, stored as {}, {}", kv_heads,
                             plain_heads(record.stored_kv_heads.value), by)
               : fmt::format("{}, as in the source, {}", kv_heads, by);
  }
  const std::string distilled = distillation_of(record);
  return fmt::format("from {} to {} ({}, {}) {}\ncalibration {}; refit {}{}",
                     plain_heads(record.source_kv_heads.value, "kv head"),
                     plain_heads(record.kv_heads.value), shown(record.pool.stored),
                     shown(record.grouping.stored), by, calibration_of(record), refit_of(record),
                     distilled.empty() ? "" : "; distillation " + distilled);
}

}  // namespace regroup

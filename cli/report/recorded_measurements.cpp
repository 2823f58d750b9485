#include "cli/report/recorded_measurements.h"

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"
#include "formats/record/conversion_record.h"

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

}  // namespace regroup

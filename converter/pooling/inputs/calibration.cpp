#include "converter/pooling/inputs/calibration.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/directory/model_directory.h"
#include "formats/dtype/dtype.h"
#include "formats/model/fingerprint.h"

namespace regroup {

std::string moments_name(AttentionRole role, std::size_t layer, InputSide side) {
  if (role == AttentionRole::kCross && side == InputSide::kKeysAndValues) {
    return "encoder_output";
  }
  return fmt::format("{}.{}", name_of(role), layer);
}

std::string distances_name(AttentionRole role, std::size_t layer) {
  return fmt::format("{}.{}.distances", name_of(role), layer);
}

Calibration::Calibration(const std::filesystem::path& path) : checkpoint_(open_checkpoint(path)) {
  const auto format = checkpoint_.metadata().find(kCalibrationFormatKey);
  if (format == checkpoint_.metadata().end()) {
    throw_bad_input("{}: no statistics: metadata key {} is missing (made by regroup calibrate?)",
                    printable(path.string(), 0), kCalibrationFormatKey);
  }
  if (format->second != kCalibrationFormat) {
    throw_bad_input("{}: statistics of format \"{}\", allowed is \"{}\"",
                    printable(path.string(), 0), printable(format->second), kCalibrationFormat);
  }
}

std::string Calibration::file() const {
  return checkpoint_.files().empty() ? "statistics"
                                     : printable(checkpoint_.files()[0].path().string(), 0);
}

void Calibration::check_source(const std::string& fingerprint) const {
  const auto recorded = checkpoint_.metadata().find(kCalibrationSourceKey);
  const std::string found = recorded == checkpoint_.metadata().end() ? "none" : recorded->second;
  if (found != fingerprint) {
    throw_bad_input("{}: statistics of another model: its fingerprint is {}, the source's {}",
                    file(), printable(found), fingerprint);
  }
}

std::string Calibration::tokens() const {
  const auto found = checkpoint_.metadata().find(kCalibrationTokensKey);
  return found == checkpoint_.metadata().end() ? "" : found->second;
}

std::string Calibration::fingerprint() const { return fingerprint_of(checkpoint_, tokens()); }

std::vector<double> Calibration::read(const std::string& name, const Shape& shape) const {
  const TensorInfo& tensor = checkpoint_.at(name);
  if (tensor.shape != shape || !is_pooling_dtype(tensor.dtype)) {
    throw_bad_input("{}: tensor {}: {} {}, wanted are floating numbers {}", file(), printable(name),
                    name_of(tensor.dtype), text_of(tensor.shape), text_of(shape));
  }
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint_.read(tensor, bytes);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  decode_to_double(tensor.dtype, bytes, values);
  if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); })) {
    throw_bad_input("{}: tensor {}: NaN or infinity", file(), printable(name));
  }
  return values;
}

InputMoments Calibration::moments(AttentionRole role, std::size_t layer, InputSide side,
                                  std::int64_t width) const {
  const std::string name = moments_name(role, layer, side);
  return {read(name + ".mean", {width}), {}, read(name + ".covariance", {width, width})};
}

KeyDistances Calibration::distances(AttentionRole role, std::size_t layer,
                                    std::int64_t query_heads) const {
  const std::string name = distances_name(role, layer);
  const Shape& shape = checkpoint_.at(name).shape;
  const std::int64_t length = shape.size() == 2 ? shape[1] : 0;
  if (length < 1 || length > kMostDistances) {
    throw_bad_input("{}: tensor {}: {}, wanted are 1 to {} distances of {} heads", file(),
                    printable(name), text_of(shape), kMostDistances, query_heads);
  }
  return {length, read(name, {query_heads, length})};
}

std::shared_ptr<const Calibration> open_calibration(const std::filesystem::path& path,
                                                    const Model& source) {
  if (path.empty()) {
    return nullptr;
  }
  auto calibration = std::make_shared<const Calibration>(path);
  calibration->check_source(fingerprint_of(source));
  return calibration;
}

}  // namespace regroup

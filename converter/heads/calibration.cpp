#include "converter/heads/calibration.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "converter/heads/heads.h"
#include "converter/heads/pool_method.h"
#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/model_directory.h"
#include "formats/tensors/dtype.h"

namespace regroup {

namespace {

// The norm whose output these inputs are. It is absent if there is none.
NormTensors norm_before(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                        InputSide side) {
  if (role == AttentionRole::kCross && side == InputSide::kKeysAndValues) {
    return spec.norm_placement == NormPlacement::kAfterResidual
               ? spec.encoder_layers.back().mlp_norm
               : spec.encoder_final_norm;
  }
  const std::vector<LayerTensors>& layers = spec.stack(role);
  switch (spec.norm_placement) {
    case NormPlacement::kBefore:
    case NormPlacement::kAround: {
      const NormTensors& own =
          role == AttentionRole::kCross ? layers[layer].cross_norm : layers[layer].attention_norm;
      return own.present() || layer > 0 ? own : spec.embedding_norm;  // ModernBERT's first layer
    }
    case NormPlacement::kAfterResidual:
      if (role == AttentionRole::kCross) {
        return layers[layer].attention_norm;
      }
      if (layer > 0) {
        return layers[layer - 1].mlp_norm;
      }
      return role == AttentionRole::kEncoder ? spec.encoder_embedding_norm : spec.embedding_norm;
    case NormPlacement::kAfterSublayer: break;
  }
  return {};
}

std::string fact_in(const Checkpoint& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

// The number becomes a part of the result's config.json.
std::int64_t tokens_in(const Checkpoint& file, const std::string& where) {
  const std::string text = fact_in(file, kCalibrationTokensKey);
  std::int64_t count = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), count);
  constexpr std::int64_t kMost = std::int64_t{1} << 53;  // so that sums do not overflow
  if (fault != std::errc() || end != text.data() + text.size() || count < 1 || count > kMost) {
    throw_bad_input("{}: metadata key {} is \"{}\", wanted is a number of tokens", where,
                    kCalibrationTokensKey, printable(text));
  }
  return count;
}

void check_checksum(const Checkpoint& file, const TensorInfo& tensor,
                    std::span<const std::byte> bytes, const std::string& where) {
  const TensorInfo& checksums = file.at(kCalibrationChecksums);
  const auto& all = file.tensors();
  if (checksums.dtype != DType::kU64 || checksums.shape != Shape{std::ssize(all) - 1}) {
    throw_bad_input("{}: tensor {}: {} {}, wanted are U64 {}", where, kCalibrationChecksums,
                    name_of(checksums.dtype), text_of(checksums.shape), std::ssize(all) - 1);
  }
  const auto place = std::ranges::count_if(all, [&](const TensorInfo& other) {
    return other.begin < tensor.begin && other.name != checksums.name;
  });
  const auto at = checksums.begin + static_cast<std::uint64_t>(place) * sizeof(std::uint64_t);
  const auto recorded = read_number<std::uint64_t>(file.file_of(checksums), at);
  if (recorded != statistics_checksum(fact_in(file, kCalibrationSourceKey),
                                      fact_in(file, kCalibrationTokensKey), tensor.name, bytes)) {
    throw_bad_input("{}: tensor {}: damaged: its checksum does not match", where,
                    printable(tensor.name));
  }
}

// A covariance of n samples of D features has errors in its D² / 2 correlations, which a solver
// takes for structure. Features that are independent are the prior, with the weight of D samples:
// the off-diagonal part shrinks by n / (n + D) (chosen by measurement, docs/defaults.md).
void shrink(std::vector<double>& covariance, std::int64_t width, std::int64_t samples) {
  const double kept = static_cast<double>(samples) / static_cast<double>(samples + width);
  for (std::size_t i = 0; i < covariance.size(); ++i) {
    if (i % (static_cast<std::size_t>(width) + 1) != 0) {
      covariance[i] *= kept;
    }
  }
}

// Throws unless these can be moments of a model's activations, up to their rounding: a variance is
// not negative, and no covariance is larger than the deviations of its two features allow.
void check_moments(const InputMoments& moments, std::int64_t width, const std::string& where) {
  constexpr double kLargest = 1e10;  // activations beyond overflow fp32 when they are multiplied
  constexpr double kRounding = 1e-4;
  const auto size = static_cast<std::size_t>(width);
  const auto wrong = [&](const char* what) { throw_bad_input("{}: {}", where, what); };
  std::vector<double> deviations(size);
  double slack = 0.0;
  for (std::size_t i = 0; i < size; ++i) {
    const double variance = moments.covariance[i * size + i];
    if (std::abs(moments.mean[i]) > kLargest || variance > kLargest * kLargest) {
      wrong("larger than activations of a model can be");
    }
    deviations[i] = std::sqrt(std::max(0.0, variance));
    slack = std::max(
        {slack, kRounding * variance, kRounding * kRounding * moments.mean[i] * moments.mean[i]});
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (moments.covariance[i * size + i] < -slack) {
      wrong("a negative variance");
    }
    for (std::size_t j = 0; j < i; ++j) {
      const double lower = moments.covariance[i * size + j],
                   upper = moments.covariance[j * size + i];
      if (std::abs(lower - upper) > slack ||
          std::abs(lower) > deviations[i] * deviations[j] + slack) {
        wrong("no covariance: not symmetric, or larger than its variances allow");
      }
    }
  }
}

// Each head's shares of attention by distance sum to 1, up to their rounding.
void check_shares(const KeyDistances& distances, std::int64_t heads, const std::string& where) {
  constexpr double kRounding = 1e-3;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto* row = distances.weights.data() + head * distances.length;
    const double sum = std::accumulate(row, row + distances.length, 0.0);
    if (*std::min_element(row, row + distances.length) < 0.0 || std::abs(sum - 1.0) > kRounding) {
      throw_bad_input("{}: shares of head {} are negative or do not sum to 1", where, head);
    }
  }
}

}  // namespace

InputMoments moments_after_norm(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                InputSide side, std::int64_t width, const Checkpoint& checkpoint) {
  const NormTensors norm = norm_before(spec, role, layer, side);
  const auto size = static_cast<std::size_t>(width);
  InputMoments moments{std::vector<double>(size, 0.0), std::vector<double>(size, 1.0), {}};
  if (norm.present() && checkpoint.at(norm.weight).elements() == width) {
    moments.variance = stored_numbers(checkpoint, norm.weight);
    for (double& weight : moments.variance) {
      weight = (weight + spec.norm_weight_offset) * (weight + spec.norm_weight_offset);
    }
    if (!norm.bias.empty()) {
      moments.mean = stored_numbers(checkpoint, norm.bias);
    }
  }
  return moments;
}

KeyDistances KeyDistances::in_order(std::span<const std::int64_t> order) const {
  return {length, blocks_in_order(weights, order, length), both_sides};
}

bool has_distances(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  return spec.qk_norm != QkNorm::kSharedAcrossHeads && solved_basis(spec, role, layer).rotates();
}

KeyDistances usual_distances(const ModelSpec& spec, bool both_sides) {
  KeyDistances usual{0, {}, both_sides};
  usual.length =
      std::clamp<std::int64_t>(spec.max_positions.value_or(kMostDistances), 1, kMostDistances);
  std::vector<double> row;
  double sum = 0.0;
  for (std::int64_t t = 0; t < usual.length; ++t) {
    const double keys = both_sides && t > 0 ? 2.0 : 1.0;
    row.push_back(keys * std::pow(static_cast<double>(1 + t), -1.5));
    sum += row.back();
  }
  for (double& weight : row) {
    weight /= sum;
  }
  for (std::int64_t head = 0; head < spec.query_heads; ++head) {
    append(usual.weights, row);
  }
  return usual;
}

std::uint64_t statistics_checksum(const std::string& source, const std::string& tokens,
                                  const std::string& name, std::span<const std::byte> bytes) {
  const std::string all = fmt::format("{} {} {} {}", source, tokens, name, checksum_of(bytes));
  return xxh64(std::as_bytes(std::span(all)));
}

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
                    printable_path(path), kCalibrationFormatKey);
  }
  if (format->second != kCalibrationFormat && format->second != kCheckedCalibrationFormat) {
    throw_bad_input("{}: statistics of format \"{}\", allowed are \"{}\" and \"{}\"",
                    printable_path(path), printable(format->second), kCalibrationFormat,
                    kCheckedCalibrationFormat);
  }
  tokens_ = tokens_in(checkpoint_, printable_path(path));
}

std::string Calibration::file() const {
  return checkpoint_.files().empty() ? "statistics" : printable_path(checkpoint_.files()[0].path());
}

void Calibration::check_source(const std::string& fingerprint) const {
  const std::string recorded = fact_in(checkpoint_, kCalibrationSourceKey);
  const std::string found = recorded.empty() ? "none" : recorded;
  if (found != fingerprint) {
    throw_bad_input("{}: statistics of another model: its fingerprint is {}, the source's {}",
                    file(), printable(found), fingerprint);
  }
}

std::string Calibration::fingerprint() const {
  return fingerprint_of(checkpoint_, std::to_string(tokens_));
}

std::vector<double> Calibration::read(const std::string& name, const Shape& shape) const {
  const TensorInfo& tensor = checkpoint_.at(name);
  if (tensor.shape != shape || !is_pooling_dtype(tensor.dtype)) {
    throw_bad_input("{}: tensor {}: {} {}, wanted are floating numbers {}", file(), printable(name),
                    name_of(tensor.dtype), text_of(tensor.shape), text_of(shape));
  }
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint_.read(tensor, bytes);
  if (fact_in(checkpoint_, kCalibrationFormatKey) == kCheckedCalibrationFormat) {
    check_checksum(checkpoint_, tensor, bytes, file());
  }
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  decode_to_double(tensor.dtype, bytes, values);
  if (!all_finite(values)) {
    throw_bad_input("{}: tensor {}: NaN or infinity", file(), printable(name));
  }
  return values;
}

InputMoments Calibration::moments(AttentionRole role, std::size_t layer, InputSide side,
                                  std::int64_t width) const {
  const std::string name = moments_name(role, layer, side);
  InputMoments moments{
      read(name + ".mean", {width}), {}, read(name + ".covariance", {width, width})};
  check_moments(moments, width, fmt::format("{}: {}", file(), printable(name)));
  shrink(moments.covariance, width, tokens_);
  return moments;
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
  const KeyDistances distances{length, read(name, {query_heads, length})};
  check_shares(distances, query_heads, fmt::format("{}: tensor {}", file(), printable(name)));
  return distances;
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

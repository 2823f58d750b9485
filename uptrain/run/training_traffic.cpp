#include "uptrain/run/training_traffic.h"

#include <set>
#include <string>
#include <vector>

#include "converter/plan/conversion_plan.h"
#include "formats/families/family.h"
#include "uptrain/run/block_elements.h"
#include "uptrain/trainer/trained_weights.h"
#include "uptrain/trainer/training_flops.h"

namespace regroup {
namespace {

double width_of(Precision precision) {
  return static_cast<double>(c10::elementSize(scalar_type_of(precision)));
}

double trained_elements(const UptrainSettings& settings, const ModelSpec& spec) {
  const std::vector<std::string> names = trained_tensors(spec, settings.trained);
  const std::set<std::string> trained(names.begin(), names.end());
  double elements = 0.0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    elements += trained.contains(tensor.name) ? elements_of(tensor.shape) : 0.0;
  }
  return elements;
}

// Batches that a rank computes in a step, alone or with others.
double batches_of_rank(const UptrainSettings& settings) {
  return static_cast<double>(settings.accumulation) / static_cast<double>(settings.shares());
}

// Bytes of the keys and values of a token, in all layers.
double bytes_of_token(const ModelSpec& spec, Precision precision) {
  return static_cast<double>(kv_bytes_per_token(
      spec.kv_heads, spec.head_dim, precision == Precision::kBf16 ? DType::kBF16 : DType::kF32));
}

double sequence_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                        const ModelSpec* teacher, std::int64_t sequence_length) {
  const auto parts = static_cast<double>(settings.sequence_ranks);
  const double tokens =
      batches_of_rank(settings) * static_cast<double>(settings.batch * sequence_length) / parts;
  const double passes = settings.recomputing ? 2 : 1;
  double bytes = passes * bytes_of_token(spec, settings.precision) +
                 bytes_of_token(spec, Precision::kFp32);  // their gradients
  if (teacher != nullptr) {
    bytes += bytes_of_token(*teacher, settings.teacher.precision.value_or(settings.precision));
  }
  return (parts - 1) * tokens * bytes;
}

// What travels because ranks share the weights or their masters.
TrainingTraffic weight_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                               const ModelSpec* teacher) {
  const auto sharing = static_cast<double>(settings.sharing_ranks());
  const double others = 1 - 1 / sharing;  // the part of all tensors that other ranks own
  const double trained = trained_elements(settings, spec);
  const double width = width_of(settings.precision);
  if (!settings.sharding.weights) {
    return {others * width * trained, others * 4 * trained, 0.0, 0.0};
  }
  const double batches = batches_of_rank(settings);
  const BlockElements blocks = block_elements(spec);
  // Forward and backward; the last block stays in between, and what is outside for all batches.
  double weights = width * (batches * (2 * blocks.inside - blocks.last) + blocks.outside);
  if (teacher != nullptr) {
    const Precision precision = settings.teacher.precision.value_or(settings.precision);
    weights += width_of(precision) * batches * block_elements(*teacher).inside;
  }
  const double other_copies = 1 - 1 / static_cast<double>(settings.sharding.copies);
  return {others * weights, others * 4 * batches * trained,
          2 * other_copies * 4 * trained / sharing, 0.0};
}

}  // namespace

TrainingTraffic training_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                                 const ModelSpec* teacher, std::int64_t sequence_length) {
  TrainingTraffic traffic = weight_traffic(settings, spec, teacher);
  traffic.sequences = sequence_traffic(settings, spec, teacher, sequence_length);
  return traffic;
}

}  // namespace regroup

#include "cli/measure/similarity.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/process/interrupt.h"
#include "cli/terminal/progress.h"
#include "converter/execute/execute_plan.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// The most groups of at least two heads: half of an even number.
std::int64_t most_groups(std::int64_t heads) {
  std::int64_t members = 2;
  while (members < heads && heads % members != 0) {
    ++members;
  }
  return std::max<std::int64_t>(1, heads / members);
}

ConversionPlan plan_of(const Model& source, const SimilarityOptions& options, PoolMethod method) {
  ConversionRequest request;
  if (!options.kv_heads.empty()) {
    request.kv_heads = options.kv_heads;
  } else if (source.spec.has_encoder()) {  // its stacks may have different numbers of layers
    request.kv_heads = {most_groups(source.spec.kv_heads.front())};
  } else {
    for (const std::int64_t heads : source.spec.kv_heads) {
      request.kv_heads.push_back(heads > 0 ? most_groups(heads) : 0);
    }
  }
  if (source.spec.has_encoder()) {
    request.roles = {AttentionRole::kSelf, AttentionRole::kCross, AttentionRole::kEncoder};
  }
  request.pooling = {method, 0};
  request.calibration = open_calibration(options.calibration, source);
  return plan_conversion(source, request);
}

EnergyKept kept_of(const AttentionPooler& pooler, AttentionRole role, std::size_t layer) {
  const PooledAttention pooled = pooler.pool(role, layer);
  EnergyKept kept{1.0, 1.0};
  for (const GroupReport& group : pooled.groups) {
    kept.keys -= group.key_share * (1.0 - group.key_energy);
    kept.values -= group.value_share * (1.0 - group.value_energy);
  }
  return kept;
}

LayerSimilarity similarity_in(const ConversionPlan& plan, const AttentionPooler& pooler,
                              AttentionRole role, std::size_t layer) {
  const HeadSimilarity found = pooler.similarity(role, layer);
  const auto heads = static_cast<std::size_t>(plan.spec.kv_heads_of(role)[layer]);
  const auto groups = static_cast<std::size_t>(plan.grouped.kv_heads_of(role)[layer]);
  return {role,
          layer,
          heads,
          heads / groups,
          {found.keys.raw, found.keys.aligned},
          {found.values.raw, found.values.aligned},
          {},
          {}};
}

}  // namespace

std::vector<LayerSimilarity> measure_similarity(const std::string& path, const std::string& layout,
                                                const SimilarityOptions& options,
                                                const Console& console) {
  const Model source = open_model(path, {.layout = layout});
  const ConversionPlan mean = plan_of(source, options, PoolMethod::kMean);
  const ConversionPlan lowrank = plan_of(source, options, PoolMethod::kLowrank);
  const auto places = pooled_layers(lowrank);
  if (places.empty()) {
    throw_usage("--similarity: {}: no layer has heads to share", printable(path, 0));
  }
  const AttentionPooler by_mean = pooler_of(mean, source.checkpoint, &interrupt_requested());
  const AttentionPooler by_lowrank = pooler_of(lowrank, source.checkpoint, &interrupt_requested());
  Progress progress(console, "compare", places.size(), "layers");
  std::vector<LayerSimilarity> layers;
  for (const auto& [role, layer] : places) {
    layers.push_back(similarity_in(lowrank, by_lowrank, role, layer));
    if (lowrank.calibration) {
      layers.back().mean = kept_of(by_mean, role, layer);
      layers.back().lowrank = kept_of(by_lowrank, role, layer);
    }
    progress.update(layers.size());
  }
  progress.finish();
  if (!lowrank.calibration) {
    console.note(fmt::format(
        "note: similarity is estimated from the weights of the norms; to measure it on a text, and "
        "the energy that sharing keeps: regroup calibrate {} --data TOKENS -o stats.safetensors, "
        "then --calibration stats.safetensors",
        printable(path, 0)));
  }
  return layers;
}

}  // namespace regroup

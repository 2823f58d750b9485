#include "formats/spec/model_spec.h"

#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/spec/alibi.h"

namespace regroup {

namespace {

constexpr std::int64_t kPartitions = 4;  // of CodeGen's checkpoints, one per device of its training

// The number of output features of a stored linear map.
std::int64_t output_features(const LinearTensors& linear, const Checkpoint& tensors) {
  const TensorInfo& weight = tensors.at(linear.weight);
  if (weight.shape.size() != 2) {
    throw_bad_input("{}: shape {}, two dimensions are needed", place_of(tensors, weight),
                    text_of(weight.shape));
  }
  return weight.shape[linear.input_major ? 1 : 0];
}

}  // namespace

std::string_view name_of(PositionKind kind) {
  // In the order of the enumeration.
  constexpr std::array<std::string_view, 6> kNames{"none",       "rope",  "learned",
                                                   "sinusoidal", "alibi", "t5"};
  static_assert(kNames.size() == static_cast<std::size_t>(PositionKind::kRelativeBias) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(AttentionRole role) {
  return role == AttentionRole::kSelf    ? "decoder"
         : role == AttentionRole::kCross ? "cross"
                                         : "encoder";
}

std::int64_t ModelSpec::idle_expert_weights() const {
  constexpr std::int64_t kMaps = 3;  // gate, up and down
  const std::int64_t sparse = std::ranges::count_if(
      layers, [](const LayerTensors& layer) { return layer.experts.present(); });
  return sparse * (routing.experts - routing.per_token) * kMaps * routing.intermediate_size *
         hidden_size;
}

double ModelSpec::share_of_experts(std::uint64_t tokens) const {
  if (routing.experts == 0) {
    return 1.0;
  }
  const double unused =
      1.0 - static_cast<double>(routing.per_token) / static_cast<double>(routing.experts);
  return 1.0 - std::pow(unused, static_cast<double>(tokens));
}

std::vector<AttentionRole> ModelSpec::roles() const {
  if (!has_encoder()) {
    return {AttentionRole::kSelf};
  }
  return {AttentionRole::kEncoder, AttentionRole::kSelf, AttentionRole::kCross};
}

const std::vector<LayerTensors>& ModelSpec::stack(AttentionRole role) const {
  return role == AttentionRole::kEncoder ? encoder_layers : layers;
}

const AttentionLayout& ModelSpec::attention(AttentionRole role, std::size_t layer) const {
  const LayerTensors& tensors = stack(role)[layer];
  return role == AttentionRole::kCross ? tensors.cross_attention : tensors.attention;
}

const std::vector<std::int64_t>& ModelSpec::kv_heads_of(AttentionRole role) const {
  return role == AttentionRole::kSelf    ? kv_heads
         : role == AttentionRole::kCross ? cross_kv_heads
                                         : encoder_kv_heads;
}

std::vector<std::int64_t>& ModelSpec::kv_heads_of(AttentionRole role) {
  return const_cast<std::vector<std::int64_t>&>(std::as_const(*this).kv_heads_of(role));
}

std::vector<std::string> ModelSpec::kv_heads_key_of(AttentionRole role) const {
  std::vector<std::string> path = kv_heads_key;
  if (role != AttentionRole::kSelf) {
    path.back().insert(0, fmt::format("{}_", name_of(role)));
  }
  return path;
}

bool ModelSpec::windows_differ() const {
  const auto free =
      std::ranges::count_if(layers, [](const LayerTensors& layer) { return layer.without_window; });
  return sliding_window && free > 0 && free < std::ssize(layers);
}

void use_alibi(ModelSpec& spec) {
  if (spec.positions == PositionKind::kAlibi) {
    throw_usage("{}: the model already has ALiBi positions", printable(spec.architecture));
  }
  if (!spec.not_computable.empty()) {
    throw_usage("{}: ALiBi needs uptraining, and regroup does not compute {}",
                printable(spec.architecture), printable(spec.not_computable));
  }
  if (spec.attention_softcap) {
    throw_usage("{}: ALiBi is not supported with soft-capped scores", printable(spec.architecture));
  }
  if (spec.sliding_window && !spec.causal) {
    throw_usage("{}: ALiBi is not supported with an encoder's sliding window",
                printable(spec.architecture));
  }
  spec.positions = PositionKind::kAlibi;
  spec.rope = {};
  spec.window_rope.reset();
  spec.alibi = {};
  spec.position_embedding.clear();
  spec.encoder_position_embedding.clear();
  spec.idle_position_tensors.clear();
  for (std::vector<LayerTensors>* stack : {&spec.layers, &spec.encoder_layers}) {
    for (LayerTensors& layer : *stack) {
      layer.relative_bias.clear();
    }
  }
}

std::vector<std::string> position_tensors(const ModelSpec& spec) {
  std::vector<std::string> names = spec.idle_position_tensors;
  for (const std::string& name : {spec.position_embedding, spec.encoder_position_embedding}) {
    if (!name.empty()) {
      names.push_back(name);
    }
  }
  for (const std::vector<LayerTensors>* stack : {&spec.layers, &spec.encoder_layers}) {
    for (const LayerTensors& layer : *stack) {
      if (!layer.relative_bias.empty()) {
        names.push_back(layer.relative_bias);
      }
    }
  }
  return names;
}

std::vector<std::vector<double>> alibi_slopes_per_layer(const ModelSpec& spec, AttentionRole role) {
  const bool encoder = role == AttentionRole::kEncoder;
  const auto& recorded = encoder ? spec.alibi.encoder_slopes : spec.alibi.slopes;
  const auto heads = static_cast<std::size_t>(spec.query_heads);
  const std::size_t layers = spec.stack(role).size();
  if (recorded.empty()) {
    return std::vector(layers, alibi_slopes(spec.query_heads, spec.alibi.bias_max));
  }
  if (recorded.size() != 1 && recorded.size() != layers) {
    throw_bad_input("recorded ALiBi slopes for {} layers, the {} has {}", recorded.size(),
                    encoder ? "encoder" : "model", layers);
  }
  for (const auto& row : recorded) {
    if (row.size() != heads) {
      throw_bad_input("{} recorded ALiBi slopes, the model has {} query heads", row.size(), heads);
    }
  }
  return recorded.size() == 1 ? std::vector(layers, recorded.front()) : recorded;
}

std::vector<std::int64_t> kv_heads_from_shapes(const ModelSpec& spec, const Checkpoint& tensors,
                                               AttentionRole role) {
  std::vector<std::int64_t> kv_heads = spec.kv_heads_of(role);
  for (std::size_t i = 0; i < kv_heads.size(); ++i) {
    const AttentionLayout& attention = spec.attention(role, i);
    if (!attention.present()) {
      continue;
    }
    const std::int64_t features = output_features(attention.k, tensors);
    const bool separate = attention.packing == Packing::kSeparate;
    const std::int64_t kv_features =
        separate ? features : features - spec.query_heads * spec.head_dim;
    const std::int64_t per_head = separate ? spec.head_dim : 2 * spec.head_dim;
    const std::int64_t heads = kv_features / per_head;
    if (kv_features % per_head != 0 || heads <= 0 || spec.query_heads % heads != 0) {
      throw_bad_input(
          "{}: {} output features do not give a whole number of kv heads for {} query heads of "
          "dimension {}",
          place_of(tensors, tensors.at(attention.k.weight)), features, spec.query_heads,
          spec.head_dim);
    }
    kv_heads[i] = heads;
  }
  return kv_heads;
}

bool is_uniform(const std::vector<std::int64_t>& kv_heads) {
  std::set<std::int64_t> counts(kv_heads.begin(), kv_heads.end());
  counts.erase(0);
  return counts.size() <= 1;
}

ModelSpec with_stored_heads(const ModelSpec& spec, const Checkpoint& tensors) {
  ModelSpec stored = spec;
  for (const AttentionRole role : spec.roles()) {
    stored.kv_heads_of(role) = kv_heads_from_shapes(spec, tensors, role);
  }
  return stored;
}

std::int64_t head_partitions(std::int64_t kv_heads) { return std::gcd(kv_heads, kPartitions); }

HeadFeatures head_features(Packing packing, std::int64_t query_heads, std::int64_t kv_heads,
                           std::int64_t head_dim) {
  HeadFeatures at;
  const std::int64_t per_group = query_heads / kv_heads;
  const std::int64_t fused = (query_heads + 2 * kv_heads) * head_dim;
  at.q_total = packing == Packing::kSeparate ? query_heads * head_dim : fused;
  at.k_total = at.v_total = packing == Packing::kSeparate ? kv_heads * head_dim : fused;
  const std::int64_t parts = head_partitions(kv_heads);
  const std::int64_t part_queries = query_heads / parts, part_groups = kv_heads / parts;
  for (std::int64_t h = 0; h < query_heads; ++h) {
    // Keys and values before this head: two for each group or part that comes first.
    const std::int64_t before = packing == Packing::kPerGroup ? 2 * (h / per_group)
                                : packing == Packing::kPartitioned
                                    ? 2 * part_groups * (h / part_queries)
                                    : 0;
    at.q.push_back((h + before) * head_dim);
  }
  for (std::int64_t g = 0; g < kv_heads; ++g) {
    switch (packing) {
      case Packing::kSeparate:
        at.k.push_back(g * head_dim);
        at.v.push_back(g * head_dim);
        break;
      case Packing::kQueryKeyValue:
        at.k.push_back((query_heads + g) * head_dim);
        at.v.push_back((query_heads + kv_heads + g) * head_dim);
        break;
      case Packing::kPerGroup:
        at.k.push_back(((g + 1) * per_group + 2 * g) * head_dim);
        at.v.push_back(((g + 1) * per_group + 2 * g + 1) * head_dim);
        break;
      case Packing::kPartitioned: {
        const std::int64_t v = g / part_groups * (part_queries + part_groups) + part_queries + g;
        at.v.push_back(v * head_dim);
        at.k.push_back((v + part_groups) * head_dim);
        break;
      }
    }
  }
  return at;
}

}  // namespace regroup

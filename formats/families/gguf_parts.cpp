#include "formats/families/gguf_parts.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/spec/alibi.h"
#include "formats/spec/config_reader.h"

namespace regroup {

std::optional<std::int64_t> GgufHyperparameters::optional_count(std::string_view name) const {
  const auto value = metadata_.count(key(name));
  if (value && (*value < 1 || *value > kMaxGgufSize)) {
    throw_bad_input("{}: {} is {}, a whole number from 1 to {} is needed", where(), key(name),
                    *value, kMaxGgufSize);
  }
  return value;
}

std::int64_t GgufHyperparameters::count(std::string_view name, std::int64_t most) const {
  const auto value = optional_count(name);
  if (!value) {
    throw_bad_input("{}: {} is missing", where(), key(name));
  }
  if (*value > most) {
    throw_bad_input("{}: {} is {}, at most {} allowed", where(), key(name), *value, most);
  }
  return *value;
}

std::optional<std::vector<std::int64_t>> GgufHyperparameters::per_layer(std::string_view name,
                                                                        std::int64_t layers) const {
  const GgufMetadata::Entry* entry = metadata_.find(key(name));
  if (entry == nullptr) {
    return std::nullopt;
  }
  const bool one_each = entry->type == GgufType::kArray;
  if (one_each && metadata_.array(key(name))->size() != static_cast<std::uint64_t>(layers)) {
    throw_bad_input("{}: {} lists {} layers, the model has {}", where(), key(name),
                    metadata_.array(key(name))->size(), layers);
  }
  auto values = metadata_.counts(key(name));
  for (const std::int64_t value : *values) {
    if (value > kMaxGgufSize) {
      throw_bad_input("{}: {} is {}, at most {} allowed", where(), key(name), value, kMaxGgufSize);
    }
  }
  return one_each ? values : std::vector(static_cast<std::size_t>(layers), values->front());
}

namespace {

void name_attention(AttentionLayout& attention, const std::string& block, const GgufGraph& graph,
                    const GgufParts& parts) {
  const bool fused = there(graph.fused_qkv, parts.fused_qkv);
  const BlockNames names{fused ? Packing::kQueryKeyValue : Packing::kSeparate,
                         {{}, fused ? "attn_qkv" : "attn_*", "attn_output"},
                         {}};
  attention = attention_at(
      block, names,
      {.qkv = there(graph.biases.qkv, parts.qkv_bias), .o = there(graph.biases.o, parts.o_bias)});
  if (there(graph.qk_norm_tensors, parts.qk_norm)) {
    attention.q_norms = {norm_at(block + "attn_q_norm", false)};
    attention.k_norms = {norm_at(block + "attn_k_norm", false)};
  }
}

void name_norms(LayerTensors& layer, const std::string& block, const GgufGraph& graph,
                const GgufParts& parts) {
  const bool bias = there(graph.biases.norm, parts.norm_bias);
  if (graph.norm_without_parameters) {
    return;
  }
  if (graph.norm_placement == NormPlacement::kAfterSublayer) {
    layer.attention_norm = norm_at(block + "post_attention_norm", bias);
    layer.mlp_norm = norm_at(block + "post_ffw_norm", bias);
  } else if (graph.second_norm) {
    layer.attention_norm = norm_at(block + (parts.second_norm ? "attn_norm_2" : "attn_norm"), bias);
    layer.mlp_norm = parts.second_norm ? norm_at(block + "attn_norm", bias) : NormTensors{};
  } else {
    layer.attention_norm = norm_at(block + "attn_norm", bias);
    layer.mlp_norm =
        there(graph.mlp_norm, parts.mlp_norm) ? norm_at(block + "ffn_norm", bias) : NormTensors{};
  }
}

void name_mlp(LayerTensors& layer, const std::string& block, const GgufGraph& graph,
              const GgufParts& parts) {
  const bool bias = there(graph.biases.mlp, parts.mlp_bias);
  layer.up = linear_at(block + "ffn_up", bias);
  layer.gate = graph.fused_gate ? layer.up
               : graph.gated    ? linear_at(block + "ffn_gate", bias)
                                : LinearTensors{};
  layer.down = linear_at(block + "ffn_down", bias);
}

void name_experts(LayerTensors& layer, const std::string& block, const GgufExperts& graph) {
  const auto of_all = [&](const char* name) {
    return std::vector<std::string>{block + name + ".weight"};
  };
  layer.experts = {.router = block + "ffn_gate_inp.weight",
                   .gate = of_all("ffn_gate_exps"),
                   .up = of_all("ffn_up_exps"),
                   .down = of_all("ffn_down_exps"),
                   .stacked = true};
  if (graph.shared) {
    layer.gate = linear_at(block + "ffn_gate_shexp", false);
    layer.up = linear_at(block + "ffn_up_shexp", false);
    layer.down = linear_at(block + "ffn_down_shexp", false);
  }
  if (graph.shared_gate) {
    layer.shared_gate = linear_at(block + "ffn_gate_inp_shexp", false);
    layer.shared_gate_is_vector = true;
  }
}

// The values of rope_freqs.weight; none if they are not positive numbers.
std::vector<double> rope_divisors_in(const Checkpoint& checkpoint) {
  constexpr std::uint64_t kMost = 1 << 16;
  const TensorInfo* tensor = checkpoint.find("rope_freqs.weight");
  if (tensor == nullptr || tensor->dtype != DType::kF32 ||
      static_cast<std::uint64_t>(tensor->elements()) > kMost) {
    return {};
  }
  std::vector<std::byte> bytes(tensor->bytes());
  checkpoint.file_of(*tensor).read_at(tensor->begin, bytes);
  std::vector<double> values(tensor->elements());
  decode_to_double(DType::kF32, bytes, values);
  const bool usable =
      std::ranges::all_of(values, [](double value) { return std::isfinite(value) && value > 0.0; });
  return usable ? values : std::vector<double>();
}

// Whether `scaling` divides the frequencies of `rope` so, to the precision of floats.
bool divides_by(RopeSpec rope, const RopeScaling& scaling, const std::vector<double>& divisors) {
  const std::vector<double> plain = rope_frequencies(rope);
  rope.scaling = scaling;
  const std::vector<double> scaled = rope_frequencies(rope);
  bool same = divisors.size() == scaled.size();
  for (std::size_t i = 0; same && i < divisors.size(); ++i) {
    same = std::abs(plain[i] / scaled[i] - divisors[i]) <= 1e-6 * divisors[i];
  }
  return same;
}

// Llama 3's formula with its usual bounds, if it gives the divisors: any divisor between 1 and the
// last one tells the positions of pretraining.
std::optional<RopeScaling> llama3_scaling(const RopeSpec& rope,
                                          const std::vector<double>& divisors) {
  const std::vector<double> plain = rope_frequencies(rope);
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor = divisors.back();
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double kept = (1.0 / divisors[i] - 1.0 / scaling.factor) / (1.0 - 1.0 / scaling.factor);
    scaling.original_positions =
        std::round((low + kept * (high - low)) * 2.0 * std::numbers::pi / plain[i]);
    if (kept > 0.0 && kept < 1.0 && divides_by(rope, scaling, divisors)) {
      return scaling;
    }
  }
  return std::nullopt;
}

// Other divisors are those of LongRoPE, the same for all lengths.
RopeScaling scaling_of_divisors(const ModelSpec& spec, const std::vector<double>& divisors) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLinear;
  scaling.factor = divisors.front();
  if (divides_by(spec.rope, scaling, divisors)) {
    return scaling.factor == 1.0 ? RopeScaling() : scaling;
  }
  if (const auto llama3 = llama3_scaling(spec.rope, divisors)) {
    return *llama3;
  }
  scaling.kind = RopeScaling::Kind::kLongRope;
  scaling.factor = 1.0;
  scaling.original_positions = static_cast<double>(spec.max_positions.value_or(0));
  scaling.short_factors = scaling.long_factors = divisors;
  return scaling;
}

// The frequency factors in rope_freqs.weight are those of a scaling that regroup records, and
// otherwise say themselves what they are.
void read_factors(ModelSpec& spec, const GgufHyperparameters& parameters,
                  const std::vector<double>& divisors) {
  RopeScaling& scaling = spec.rope.scaling;
  const auto text = parameters.metadata().text("regroup.rope_scaling");
  if (!text && scaling.kind == RopeScaling::Kind::kNone &&
      std::ssize(divisors) == spec.rope.rotary_dim / 2 && !divisors.empty()) {
    scaling = scaling_of_divisors(spec, divisors);
    return;
  }
  if (!text) {
    spec.not_computable = scaling.kind == RopeScaling::Kind::kNone
                              ? "frequency factors in rope_freqs.weight"
                              : "frequency factors in rope_freqs.weight beside rope.scaling";
    return;
  }
  const std::string where = parameters.where() + ": regroup.rope_scaling";
  const Json json = parse_json_object(*text, where);
  const ConfigReader given(json, where);
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor = given.number_or({"factor"}, 1.0);
  scaling.original_positions = given.number_or({"original_max_position_embeddings"}, 0.0);
  scaling.low_frequency_factor = given.number_or({"low_freq_factor"}, 1.0);
  scaling.high_frequency_factor = given.number_or({"high_freq_factor"}, 4.0);
}

void read_rope_scaling(ModelSpec& spec, const GgufHyperparameters& parameters) {
  const std::string type(
      parameters.metadata().text(parameters.key("rope.scaling.type")).value_or("linear"));
  const double factor =
      parameters.number_or("rope.scaling.factor", parameters.number_or("rope.scale_linear", 0.0));
  const double attention_factor = parameters.number_or("rope.scaling.attn_factor", 1.0);
  RopeScaling& scaling = spec.rope.scaling;
  if (type != "none" && type != "linear" && type != "yarn") {
    spec.not_computable = "rope.scaling.type " + printable(type);
  } else if (type == "yarn" && factor > 0.0) {
    scaling.kind = RopeScaling::Kind::kYarn;
    scaling.factor = factor;
    scaling.original_positions =
        parameters.number_or("rope.scaling.original_context_length",
                             static_cast<double>(spec.max_positions.value_or(0)));
    scaling.attention_factor =
        attention_factor * (factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0);
  } else if (attention_factor != 1.0) {
    spec.not_computable = "rope.scaling.attn_factor without yarn";
  } else if (type == "linear" && factor != 0.0 && factor != 1.0) {
    scaling.kind = RopeScaling::Kind::kLinear;
    scaling.factor = factor;
  }
  if (factor < 0.0 || !std::isfinite(factor)) {
    throw_bad_input("{}: {} is {}, a positive number is needed", parameters.where(),
                    parameters.key("rope.scaling.factor"), factor);
  }
}

void read_rope(ModelSpec& spec, const GgufHyperparameters& parameters, const GgufGraph& graph,
               const GgufParts& parts) {
  spec.rope.interleaved = graph.interleaved;
  spec.rope.theta = parameters.number_or("rope.freq_base", 10000.0);
  spec.rope.rotary_dim = parameters.optional_count("rope.dimension_count").value_or(spec.head_dim);
  const bool fits = graph.whole_head_rotates ? spec.rope.rotary_dim == spec.head_dim
                                             : spec.rope.rotary_dim <= spec.head_dim;
  if (!(spec.rope.theta > 0.0) || !fits || spec.rope.rotary_dim % 2 != 0) {
    throw_bad_input("{}: RoPE with base {} on {} of {} dimensions; {} of them is needed",
                    parameters.where(), spec.rope.theta, spec.rope.rotary_dim, spec.head_dim,
                    graph.whole_head_rotates ? "an even number and all" : "an even part");
  }
  read_rope_scaling(spec, parameters);
  if (parts.rope_factors && graph.rope_factors) {
    read_factors(spec, parameters, parts.rope_divisors);
  }
}

}  // namespace

std::int64_t leading_dense_layers(const ModelSpec& spec) {
  const auto first = std::ranges::find_if(
      spec.layers, [](const LayerTensors& layer) { return layer.experts.present(); });
  return first - spec.layers.begin();
}

GgufParts gguf_parts_in(const Checkpoint& checkpoint) {
  const auto has = [&](const std::string& name) { return checkpoint.find(name) != nullptr; };
  const auto in_any_layer = [&](const std::string& name) {
    for (std::int64_t i = 0; i < kMaxGgufLayers; ++i) {
      if (has(fmt::format("blk.{}.{}", i, name))) {
        return true;
      }
    }
    return false;
  };
  GgufParts parts;
  parts.fused_qkv = in_any_layer("attn_qkv.weight");
  parts.qkv_bias = in_any_layer(parts.fused_qkv ? "attn_qkv.bias" : "attn_q.bias");
  parts.o_bias = in_any_layer("attn_output.bias");
  parts.mlp_bias = in_any_layer("ffn_up.bias");
  parts.norm_bias = has("output_norm.bias");
  parts.mlp_norm = in_any_layer("ffn_norm.weight");
  parts.second_norm = in_any_layer("attn_norm_2.weight");
  parts.qk_norm = in_any_layer("attn_q_norm.weight");
  parts.position_embedding = has("position_embd.weight");
  parts.head = has("output.weight");
  parts.head_bias = has("output.bias");
  parts.rope_factors = has("rope_freqs.weight");
  parts.rope_divisors = rope_divisors_in(checkpoint);
  parts.longrope_factors = has("rope_factors_long.weight") || has("rope_factors_short.weight");
  return parts;
}

void name_gguf_tensors(ModelSpec& spec, const GgufGraph& graph, const GgufParts& parts,
                       std::span<const std::int64_t> mlp_widths, std::int64_t dense) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    LayerTensors& layer = spec.layers[i];
    name_norms(layer, block, graph, parts);
    if (spec.kv_heads[i] > 0) {
      name_attention(layer.attention, block, graph, parts);
    } else {
      layer.attention_norm = {};
    }
    if (spec.routing.experts > 0 && static_cast<std::int64_t>(i) >= dense) {
      name_experts(layer, block, graph.experts);
    } else if (mlp_widths[i] > 0) {
      name_mlp(layer, block, graph, parts);
    } else {
      layer.mlp_norm = {};
      spec.not_computable = "layers without an MLP";
    }
  }
  spec.token_embedding = "token_embd.weight";
  if (graph.embedding_norm) {
    spec.embedding_norm = norm_at("token_embd_norm", true);
  }
  if (!graph.norm_without_parameters) {
    spec.final_norm = norm_at("output_norm", there(graph.biases.norm, parts.norm_bias));
  }
  spec.lm_head = there(graph.head, parts.head) ? "output.weight" : "";
  spec.lm_head_bias = there(graph.head_bias, parts.head_bias) ? "output.bias" : "";
}

void read_gguf_positions(ModelSpec& spec, const GgufHyperparameters& parameters,
                         const GgufGraph& graph, const GgufParts& parts) {
  const std::optional<PositionKind> positions = graph.positions_with(spec.layer_count());
  if (!positions) {
    throw_bad_input("{}: {} is {}; llama.cpp knows the positions of {} and {} layers only",
                    parameters.where(), parameters.key("block_count"), spec.layer_count(),
                    graph.alibi_layers, graph.rope_layers);
  }
  spec.positions = *positions;
  if (spec.positions == PositionKind::kAlibi && graph.max_alibi_bias) {
    spec.alibi.bias_max = parameters.number_or("attention.max_alibi_bias", 0.0);
    if (!(spec.alibi.bias_max > 0.0)) {
      spec.alibi.bias_max = AlibiSpec().bias_max;
      spec.positions = parts.position_embedding ? PositionKind::kLearned : PositionKind::kNone;
    }
  }
  if (parts.longrope_factors) {
    spec.not_computable = "frequency factors in rope_factors_long.weight";
  }
  if (spec.positions == PositionKind::kRope) {
    read_rope(spec, parameters, graph, parts);
  } else if (spec.positions == PositionKind::kLearned) {
    spec.position_embedding = "position_embd.weight";
  }
}

}  // namespace regroup

#include "formats/families/gguf_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
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

std::int64_t GgufHyperparameters::count(std::string_view name) const {
  const auto value = optional_count(name);
  if (!value) {
    throw_bad_input("{}: {} is missing", where(), key(name));
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
  const bool bias = there(graph.qkv_bias, parts.qkv_bias);
  if (there(graph.fused_qkv, parts.fused_qkv)) {
    attention.packing = Packing::kQueryKeyValue;
    attention.q = attention.k = attention.v = linear_at(block + "attn_qkv", bias);
  } else {
    attention.q = linear_at(block + "attn_q", bias);
    attention.k = linear_at(block + "attn_k", bias);
    attention.v = linear_at(block + "attn_v", bias);
  }
  attention.o = linear_at(block + "attn_output", there(graph.o_bias, parts.o_bias));
  if (there(graph.qk_norm_tensors, parts.qk_norm)) {
    attention.q_norms = {norm_at(block + "attn_q_norm", false)};
    attention.k_norms = {norm_at(block + "attn_k_norm", false)};
  }
}

void name_norms(LayerTensors& layer, const std::string& block, const GgufGraph& graph,
                const GgufParts& parts) {
  const bool bias = there(graph.norm_bias, parts.norm_bias);
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
  const bool bias = there(graph.mlp_bias, parts.mlp_bias);
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

}  // namespace

std::int64_t leading_dense_layers(const ModelSpec& spec) {
  const auto first =
      std::find_if(spec.layers.begin(), spec.layers.end(),
                   [](const LayerTensors& layer) { return layer.experts.present(); });
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
    spec.final_norm = norm_at("output_norm", there(graph.norm_bias, parts.norm_bias));
  }
  spec.lm_head = there(graph.head, parts.head) ? "output.weight" : "";
  spec.lm_head_bias = there(graph.head_bias, parts.head_bias) ? "output.bias" : "";
}

namespace {

// The parameters cannot be read from the frequency factors in rope_freqs.weight. regroup records
// them.
void read_recorded_scaling(ModelSpec& spec, const GgufHyperparameters& parameters) {
  const auto text = parameters.metadata().text("regroup.rope_scaling");
  if (!text) {
    spec.not_computable = "frequency factors in rope_freqs.weight";
    return;
  }
  const std::string where = parameters.where() + ": regroup.rope_scaling";
  const Json json = parse_json_object(*text, where);
  const ConfigReader given(json, where);
  RopeScaling& scaling = spec.rope.scaling;
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
               bool factors) {
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
  if (factors && graph.rope_factors) {
    read_recorded_scaling(spec, parameters);
  }
}

}  // namespace

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
    read_rope(spec, parameters, graph, parts.rope_factors);
  } else if (spec.positions == PositionKind::kLearned) {
    spec.position_embedding = "position_embd.weight";
  }
}

}  // namespace regroup

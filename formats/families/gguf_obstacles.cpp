#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "formats/families/gguf_parts.h"
#include "formats/families/loader_code.h"

namespace regroup {
namespace {

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return "silu";
    case Activation::kGeluErf: return "gelu";
    case Activation::kGeluTanh: return "gelu_tanh";
    case Activation::kRelu: return "relu";
    case Activation::kReluSquared: return "relu2";
  }
  return "";
}

std::string_view name_of(NormKind norm) {
  return norm == NormKind::kRmsNorm ? "RMSNorm" : "LayerNorm";
}

template <typename Test>
bool any_layer(const ModelSpec& spec, Test test) {
  return std::ranges::any_of(spec.layers, test);
}

bool has_bias(const LinearTensors& linear) { return !linear.bias.empty(); }

// Each obstacle_… returns the reason why `graph` cannot compute `spec`, or an empty text.

// Whether rope_freqs.weight can hold the scaling.
bool is_divisors(const RopeScaling& scaling) {
  return scaling.kind == RopeScaling::Kind::kLlama3 ||
         (scaling.kind == RopeScaling::Kind::kLongRope && scaling.attention_factor == 1.0 &&
          scaling.short_factors == scaling.long_factors);
}

std::string obstacle_in_rope(const ModelSpec& spec, const GgufGraph& graph) {
  const RopeScaling& scaling = spec.rope.scaling;
  if (graph.whole_head_rotates && spec.rope.rotary_dim != spec.head_dim) {
    return fmt::format("RoPE on {} of {} dimensions, all needed", spec.rope.rotary_dim,
                       spec.head_dim);
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].without_rope != graph.lacks_rope(i)) {
      return fmt::format("RoPE {} layer {}", graph.lacks_rope(i) ? "in" : "missing from", i);
    }
  }
  if (spec.window_rope) {
    return "another RoPE in layers with a sliding window";
  }
  if (scaling.kind == RopeScaling::Kind::kDynamic) {
    return "dynamic RoPE scaling";
  }
  const bool divides = is_divisors(scaling);
  if (scaling.kind == RopeScaling::Kind::kLongRope && !divides) {
    return "LongRoPE scaling";
  }
  if (divides && !graph.rope_factors) {
    return "llama3's RoPE scaling";
  }
  const RopeScaling usual;
  if (scaling.kind == RopeScaling::Kind::kYarn &&
      (scaling.beta_fast != usual.beta_fast || scaling.beta_slow != usual.beta_slow ||
       !scaling.truncate)) {
    return "YaRN with unusual values of beta_fast, beta_slow or truncate";
  }
  return "";
}

std::string obstacle_in_alibi(const ModelSpec& spec, const GgufGraph& graph) {
  if (spec.alibi.scaled) {
    return "an ALiBi bias that is divided by the square root of the head dimension";
  }
  if (!graph.max_alibi_bias && spec.alibi.bias_max != AlibiSpec().bias_max) {
    return fmt::format("ALiBi's largest bias {}, 8 needed", spec.alibi.bias_max);
  }
  return derived_otherwise(spec).empty() ? "" : "ALiBi slopes that differ from the formula's";
}

std::string obstacle_in_positions(const ModelSpec& spec, const GgufGraph& graph) {
  const bool without_alibi = graph.max_alibi_bias && (spec.positions == PositionKind::kNone ||
                                                      spec.positions == PositionKind::kLearned);
  const std::optional<PositionKind> positions = graph.positions_with(spec.layer_count());
  if (!positions) {
    return fmt::format("{} layers, {} (ALiBi) or {} (RoPE) needed", spec.layer_count(),
                       graph.alibi_layers, graph.rope_layers);
  }
  if (spec.positions != *positions && !without_alibi) {
    return fmt::format("positions {}, {} needed", name_of(spec.positions), name_of(*positions));
  }
  if (spec.position_offset != 0) {
    return fmt::format("{} rows before the first position", spec.position_offset);
  }
  switch (spec.positions) {
    case PositionKind::kRope: return obstacle_in_rope(spec, graph);
    case PositionKind::kAlibi: return obstacle_in_alibi(spec, graph);
    default: return "";
  }
}

std::string obstacle_in_norms(const ModelSpec& spec, const GgufGraph& graph) {
  if (spec.norm != graph.norm) {
    return fmt::format("{}, {} needed", name_of(spec.norm), name_of(graph.norm));
  }
  if (spec.norm_without_parameters != graph.norm_without_parameters) {
    return fmt::format("norms {} parameters", spec.norm_without_parameters ? "without" : "with");
  }
  if (spec.norm_placement != graph.norm_placement || spec.residual_after_norm) {
    return "norms in other places";
  }
  const bool has_qk_norm = spec.qk_norm != QkNorm::kNone;
  if ((has_qk_norm && (spec.qk_norm != graph.qk_norm || spec.qk_norm == QkNorm::kPerHead)) ||
      has_qk_norm < (graph.qk_norm_tensors == Presence::kAlways)) {
    return has_qk_norm ? "norms of queries and keys" : "no norms of queries and keys";
  }
  if (spec.embedding_norm.present() != graph.embedding_norm) {
    return spec.embedding_norm.present() ? "a norm after the embedding"
                                         : "no norm after the embedding";
  }
  return "";
}

std::string obstacle_in_residual(const ModelSpec& spec, const GgufGraph& graph,
                                 const GgufParts& parts) {
  const bool fits = graph.residual == Residual::kByKey ||
                    (graph.residual == Residual::kByMlpNorm
                         ? spec.parallel_residual != parts.mlp_norm
                         : spec.parallel_residual == (graph.residual == Residual::kParallel));
  if (!fits) {
    return spec.parallel_residual ? "attention and MLP in parallel"
                                  : "attention and MLP in sequence";
  }
  const bool norm_may_be = graph.mlp_norm != Presence::kNever;
  const bool norm_must_be = graph.mlp_norm == Presence::kAlways && !graph.norm_without_parameters;
  if (parts.mlp_norm ? !norm_may_be : norm_must_be) {
    return parts.mlp_norm ? "a separate norm of the MLP" : "no separate norm of the MLP";
  }
  return "";
}

std::string obstacle_in_block(const ModelSpec& spec, const GgufGraph& graph) {
  // llama.cpp always computes GELU in its tanh form, also in place of erf's: see
  // gguf_differences().
  const Activation activation =
      spec.activation == Activation::kGeluErf ? Activation::kGeluTanh : spec.activation;
  if (activation != graph.activation) {
    return fmt::format("activation {}, {} needed", name_of(spec.activation),
                       name_of(graph.activation));
  }
  const bool gated = any_layer(spec, [](const LayerTensors& layer) {
    return layer.gate.present() || layer.experts.present();
  });
  if (gated != graph.gated) {
    return gated ? "a gated MLP" : "an MLP without a gate";
  }
  if (spec.attention_softcap || spec.logit_softcap) {
    return "soft-capped scores or logits";
  }
  if (spec.clip_qkv && !graph.clips) {
    return "clipped queries, keys and values";
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  if (!graph.multipliers && std::abs(spec.attention_scale.value_or(scale) / scale - 1.0) > 1e-6) {
    return fmt::format("attention scaled by {}, {} needed", *spec.attention_scale, scale);
  }
  return "";
}

std::string obstacle_in_sizes(const ModelSpec& spec, const GgufGraph& graph) {
  if (!graph.free_head_dim && spec.query_heads * spec.head_dim != spec.hidden_size) {
    return fmt::format("{} heads of {} dimensions, which make no {}", spec.query_heads,
                       spec.head_dim, spec.hidden_size);
  }
  const bool of_their_own = any_layer(spec, [](const LayerTensors& layer) {
    const bool own_width = layer.intermediate_size > 0 && !layer.experts.present();
    return own_width || !layer.attention.present() || !layer.has_mlp();
  });
  if (!graph.per_layer && (!all_equal(spec.kv_heads) || of_their_own)) {
    return "layers that differ in kv heads or widths";
  }
  // llama.cpp skips the rest of a layer without an MLP, so its attention would be unused.
  if (any_layer(spec, [](const LayerTensors& layer) {
        return layer.attention.present() && !layer.has_mlp();
      })) {
    return "a layer with attention and no MLP, which llama.cpp skips";
  }
  if (spec.layer_count() > kMaxGgufLayers) {
    return fmt::format("{} layers, at most {} allowed", spec.layer_count(), kMaxGgufLayers);
  }
  return "";
}

std::string obstacle_at_the_ends(const ModelSpec& spec, const GgufGraph& graph) {
  if (spec.has_encoder() || !spec.causal || !spec.token_type_embedding.empty() ||
      spec.head_transform.present() || spec.head_norm.present()) {
    return "an encoder";
  }
  if (spec.project_in.present() || spec.project_out.present() ||
      spec.embedding_width() != spec.hidden_size) {
    return "embeddings of another width";
  }
  const double scale = graph.multipliers        ? spec.embedding_scale
                       : graph.scaled_embedding ? std::sqrt(static_cast<double>(spec.hidden_size))
                                                : 1;
  if (std::abs(spec.embedding_scale / scale - 1.0) > 1e-6 ||
      (spec.output_scale != 1.0 && !graph.multipliers && !graph.logit_scale) ||
      (spec.residual_scale != 1.0 && !graph.multipliers)) {
    return "another scale of the embedding, the residuals or the output";
  }
  if (!spec.lm_head.empty() && graph.head == Presence::kNever) {
    return "a separate output matrix";
  }
  return spec.final_norm.present() || graph.norm_without_parameters ? "" : "no final norm";
}

// Biases that only the graph has are written as zeros; biases that only the model has are an
// obstacle.
std::string obstacle_in_biases(const GgufGraph& graph, const GgufParts& parts) {
  const auto unknown = [](bool has, Presence presence) {
    return has && presence == Presence::kNever;
  };
  return unknown(parts.qkv_bias, graph.biases.qkv)     ? "biases of queries, keys and values"
         : unknown(parts.o_bias, graph.biases.o)       ? "a bias of attention's output"
         : unknown(parts.mlp_bias, graph.biases.mlp)   ? "biases in the MLP"
         : unknown(parts.norm_bias, graph.biases.norm) ? "biases in norms"
         : unknown(parts.head_bias, graph.head_bias)   ? "a bias of the output"
                                                       : "";
}

// Which layers have experts, and what all tokens share in them.
std::string obstacle_in_expert_layers(const ModelSpec& spec, const GgufExperts& experts) {
  const std::int64_t dense = leading_dense_layers(spec);
  if (dense > 0 && !experts.leading_dense) {
    return "layers without experts";
  }
  std::optional<std::int64_t> width;  // of the shared expert
  for (auto i = static_cast<std::size_t>(dense); i < spec.layers.size(); ++i) {
    const LayerTensors& layer = spec.layers[i];
    if (!layer.experts.present()) {
      return "layers without experts after one that has them";
    }
    if (layer.up.present() != experts.shared ||
        layer.shared_gate.present() != experts.shared_gate) {
      return experts.shared ? "no shared expert, or another gate of it" : "a shared expert";
    }
    if (experts.shared && width.value_or(layer.intermediate_size) != layer.intermediate_size) {
      return "shared experts of different widths";
    }
    width = layer.intermediate_size;
  }
  const bool counts_shared = experts.shared && !experts.shared_gate;  // as so many experts
  return counts_shared && width.value_or(0) % spec.routing.intermediate_size != 0
             ? "a shared expert that is no multiple of the others' width"
             : "";
}

std::string obstacle_in_experts(const ModelSpec& spec, const GgufGraph& graph) {
  const ExpertRouting& routing = spec.routing;
  if (routing.experts == 0) {
    return graph.experts.presence == Presence::kAlways ? "no experts" : "";
  }
  if (graph.experts.presence == Presence::kNever) {
    return "experts";
  }
  if (routing.normalised != graph.experts.normalised) {
    return fmt::format("weights of experts {}divided by their sum",
                       routing.normalised ? "" : "not ");
  }
  if (routing.scale != 1.0) {
    return "another scale of experts";
  }
  const bool grouped = std::ranges::any_of(
      spec.kv_heads, [&](std::int64_t heads) { return heads != spec.query_heads; });
  if (graph.whole_k_norm && grouped) {
    return "fewer kv heads than query heads, for which llama.cpp's norm of keys is too wide";
  }
  return obstacle_in_expert_layers(spec, graph.experts);
}

}  // namespace

GgufParts gguf_parts_of(const ModelSpec& spec) {
  GgufParts parts;
  parts.qkv_bias = any_layer(spec, [](const LayerTensors& layer) {
    return has_bias(layer.attention.q) || has_bias(layer.attention.k) ||
           has_bias(layer.attention.v);
  });
  parts.o_bias =
      any_layer(spec, [](const LayerTensors& layer) { return has_bias(layer.attention.o); });
  parts.mlp_bias = any_layer(spec, [](const LayerTensors& layer) {
    return has_bias(layer.gate) || has_bias(layer.up) || has_bias(layer.down);
  });
  parts.norm_bias = !spec.final_norm.bias.empty() || any_layer(spec, [](const LayerTensors& layer) {
    return !layer.attention_norm.bias.empty() || !layer.mlp_norm.bias.empty();
  });
  parts.mlp_norm =
      any_layer(spec, [](const LayerTensors& layer) { return layer.mlp_norm.present(); });
  parts.qk_norm = spec.qk_norm != QkNorm::kNone;
  parts.position_embedding = spec.positions == PositionKind::kLearned;
  parts.head = !spec.lm_head.empty();
  parts.head_bias = !spec.lm_head_bias.empty();
  parts.rope_factors = spec.positions == PositionKind::kRope && is_divisors(spec.rope.scaling);
  return parts;
}

std::string gguf_obstacle(const ModelSpec& spec, const GgufGraph& graph) {
  const GgufParts parts = gguf_parts_of(spec);
  for (const std::string& found :
       {spec.not_computable, obstacle_in_experts(spec, graph), obstacle_in_positions(spec, graph),
        obstacle_in_norms(spec, graph), obstacle_in_residual(spec, graph, parts),
        obstacle_in_block(spec, graph), obstacle_in_sizes(spec, graph),
        obstacle_at_the_ends(spec, graph), obstacle_in_biases(graph, parts)}) {
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

}  // namespace regroup

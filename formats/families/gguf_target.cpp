// Which graph of llama.cpp computes a ModelSpec, and the hyper-parameters to tell it so.
#include <algorithm>
#include <cmath>

#include "formats/alibi.h"
#include "formats/error.h"
#include "formats/families/gguf_graphs.h"
#include "formats/families/gguf_model.h"
#include "formats/json.h"
#include "formats/rope_frequencies.h"

namespace regroup {
namespace {

// For models that name no context length, which llama.cpp asks for.
constexpr std::int64_t kAssumedContext = 2048;
constexpr std::int64_t kMaxLayers = 512;

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
  return std::any_of(spec.layers.begin(), spec.layers.end(), test);
}

bool has_bias(const LinearTensors& linear) { return !linear.bias.empty(); }

bool has_second_norm(const ModelSpec& spec, const GgufGraph& graph) {
  return graph.second_norm &&
         any_layer(spec, [](const LayerTensors& layer) { return layer.mlp_norm.present(); });
}

// The parts that `spec` itself has.
GgufParts parts_in(const ModelSpec& spec) {
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
  parts.rope_factors =
      spec.positions == PositionKind::kRope && spec.rope.scaling.kind == RopeScaling::Kind::kLlama3;
  return parts;
}

// Each obstacle_… says why `graph` cannot compute `spec`, or nothing.

std::string obstacle_in_rope(const ModelSpec& spec, const GgufGraph& graph) {
  const RopeScaling& scaling = spec.rope.scaling;
  if (graph.whole_head_rotates && spec.rope.rotary_dim != spec.head_dim) {
    return fmt::format("RoPE on {} of {} dimensions, all needed", spec.rope.rotary_dim,
                       spec.head_dim);
  }
  if (scaling.kind == RopeScaling::Kind::kDynamic) {
    return "dynamic RoPE scaling";
  }
  if (scaling.kind == RopeScaling::Kind::kLlama3 && !graph.rope_factors) {
    return "llama3's RoPE scaling";
  }
  const RopeScaling usual;
  if (scaling.kind == RopeScaling::Kind::kYarn &&
      (scaling.beta_fast != usual.beta_fast || scaling.beta_slow != usual.beta_slow ||
       !scaling.truncate)) {
    return "YaRN with a beta_fast, beta_slow or truncate of its own";
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
  const auto formula = alibi_slopes(spec.query_heads, spec.alibi.bias_max);
  for (const auto& row : spec.alibi.slopes) {
    if (row != formula) {
      return "ALiBi slopes that are not those of the heads' order";
    }
  }
  return "";
}

std::string obstacle_in_positions(const ModelSpec& spec, const GgufGraph& graph) {
  const bool without_alibi = graph.max_alibi_bias && (spec.positions == PositionKind::kNone ||
                                                      spec.positions == PositionKind::kLearned);
  if (spec.positions != graph.positions && !without_alibi) {
    return fmt::format("positions {}, {} needed", name_of(spec.positions),
                       name_of(graph.positions));
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
  if ((has_qk_norm && (spec.qk_norm != graph.qk_norm || spec.qk_norm == QkNorm::kEachHead)) ||
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
    return spec.parallel_residual ? "attention and MLP side by side"
                                  : "attention and MLP one after the other";
  }
  const bool norm_may_be = graph.mlp_norm != Presence::kNever;
  const bool norm_must_be = graph.mlp_norm == Presence::kAlways && !graph.norm_without_parameters;
  if (parts.mlp_norm ? !norm_may_be : norm_must_be) {
    return parts.mlp_norm ? "a norm of the MLP's own" : "no norm of the MLP's own";
  }
  return "";
}

std::string obstacle_in_block(const ModelSpec& spec, const GgufGraph& graph) {
  // llama.cpp computes erf's GELU in tanh's form wherever it meets one: see gguf_differences().
  const Activation activation =
      spec.activation == Activation::kGeluErf ? Activation::kGeluTanh : spec.activation;
  if (activation != graph.activation) {
    return fmt::format("activation {}, {} needed", name_of(spec.activation),
                       name_of(graph.activation));
  }
  const bool gated =
      any_layer(spec, [](const LayerTensors& layer) { return layer.gate.present(); });
  if (gated != graph.gated) {
    return gated ? "a gated MLP" : "an MLP without a gate";
  }
  if (spec.clip_qkv && !graph.clips) {
    return "clipped queries, keys and values";
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  if (std::abs(spec.attention_scale.value_or(scale) / scale - 1.0) > 1e-6) {
    return fmt::format("attention scaled by {}, {} needed", *spec.attention_scale, scale);
  }
  return "";
}

std::string obstacle_in_sizes(const ModelSpec& spec, const GgufGraph& graph) {
  if (!graph.free_head_dim && spec.query_heads * spec.head_dim != spec.hidden_size) {
    return fmt::format("{} heads of {} dimensions, which make no {}", spec.query_heads,
                       spec.head_dim, spec.hidden_size);
  }
  const bool same_heads = std::adjacent_find(spec.kv_heads.begin(), spec.kv_heads.end(),
                                             std::not_equal_to<>()) == spec.kv_heads.end();
  const bool of_their_own = any_layer(spec, [](const LayerTensors& layer) {
    return layer.intermediate_size > 0 || !layer.attention.present() || !layer.up.present();
  });
  if (!graph.per_layer && (!same_heads || of_their_own)) {
    return "layers that differ in kv heads or widths";
  }
  // llama.cpp goes on to the next layer as soon as it finds no MLP, the attention before it unused.
  if (any_layer(spec, [](const LayerTensors& layer) {
        return layer.attention.present() && !layer.up.present();
      })) {
    return "a layer with attention and no MLP, which it passes over";
  }
  if (spec.layer_count() > kMaxLayers) {
    return fmt::format("{} layers, at most {} allowed", spec.layer_count(), kMaxLayers);
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
  const double scale =
      graph.scaled_embedding ? std::sqrt(static_cast<double>(spec.hidden_size)) : 1;
  if (std::abs(spec.embedding_scale / scale - 1.0) > 1e-6 || spec.output_scale != 1.0) {
    return "another scale of the embedding or output";
  }
  if (!spec.lm_head.empty() && graph.head == Presence::kNever) {
    return "an output matrix of its own";
  }
  return spec.final_norm.present() || graph.norm_without_parameters ? "" : "no final norm";
}

// Biases that a graph has and the model has not are zeros; the other way round there is no help.
std::string obstacle_in_biases(const GgufGraph& graph, const GgufParts& parts) {
  const auto unknown = [](bool has, Presence presence) {
    return has && presence == Presence::kNever;
  };
  return unknown(parts.qkv_bias, graph.qkv_bias)     ? "biases of queries, keys and values"
         : unknown(parts.o_bias, graph.o_bias)       ? "a bias of attention's output"
         : unknown(parts.mlp_bias, graph.mlp_bias)   ? "biases in the MLP"
         : unknown(parts.norm_bias, graph.norm_bias) ? "biases in norms"
         : unknown(parts.head_bias, graph.head_bias) ? "a bias of the output"
                                                     : "";
}

std::string obstacle(const ModelSpec& spec, const GgufGraph& graph) {
  const GgufParts parts = parts_in(spec);
  for (const std::string& found :
       {spec.not_computable, obstacle_in_positions(spec, graph), obstacle_in_norms(spec, graph),
        obstacle_in_residual(spec, graph, parts), obstacle_in_block(spec, graph),
        obstacle_in_sizes(spec, graph), obstacle_at_the_ends(spec, graph),
        obstacle_in_biases(graph, parts)}) {
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

const GgufGraph& graph_for(const ModelSpec& spec) {
  std::vector<const GgufGraph*> order;
  for (const GgufGraph& graph : gguf_graphs()) {
    order.push_back(&graph);
  }
  const auto distance = [&](const GgufGraph* graph) {
    return graph->made_for == spec.architecture ? 0 : graph->family == spec.family ? 1 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](const GgufGraph* a, const GgufGraph* b) {
    return distance(a) < distance(b);
  });
  const auto fits = std::find_if(order.begin(), order.end(), [&](const GgufGraph* graph) {
    return obstacle(spec, *graph).empty();
  });
  if (fits != order.end()) {
    return **fits;
  }
  std::string reasons;
  for (const GgufGraph* graph : order) {
    if (graph->family == spec.family || reasons.empty()) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", graph->architecture,
                             obstacle(spec, *graph));
    }
  }
  throw_usage("no graph of llama.cpp computes this {} model (what stands in the way of {})",
              spec.family, reasons);
}

std::int64_t context_of(const ModelSpec& spec) {
  const std::int64_t context = spec.max_positions.value_or(kAssumedContext);
  // No graph here slides a window; within its length all agree.
  return spec.sliding_window ? std::min(context, *spec.sliding_window) : context;
}

class Keys {
 public:
  explicit Keys(std::string_view architecture) : prefix_(std::string(architecture) + ".") {
    metadata_.set_string("general.architecture", architecture);
  }

  void count(std::string_view name, std::int64_t value) {
    metadata_.set_u32(prefix_ + std::string(name), static_cast<std::uint32_t>(value));
  }
  void number(std::string_view name, double value) {
    metadata_.set_f32(prefix_ + std::string(name), static_cast<float>(value));
  }
  void flag(std::string_view name, bool value) {
    metadata_.set_bool(prefix_ + std::string(name), value);
  }
  void text(std::string_view name, std::string_view value) {
    metadata_.set_string(prefix_ + std::string(name), value);
  }
  void counts(std::string_view name, const std::vector<std::int64_t>& values) {
    const std::vector<std::int32_t> narrow(values.begin(), values.end());
    metadata_.set_array(prefix_ + std::string(name), std::span<const std::int32_t>(narrow));
  }

  GgufMetadata& metadata() { return metadata_; }

 private:
  GgufMetadata metadata_;
  std::string prefix_;
};

void put_sizes(Keys& keys, const ModelSpec& spec, const GgufGraph& graph) {
  keys.count("context_length", context_of(spec));
  keys.count("embedding_length", spec.hidden_size);
  keys.count("block_count", spec.layer_count());
  keys.count("vocab_size", spec.vocab_size);
  if (!graph.per_layer) {
    keys.count("feed_forward_length", spec.intermediate_size);
    keys.count("attention.head_count", spec.query_heads);
    keys.count("attention.head_count_kv", spec.kv_heads.front());
  } else {
    std::vector<std::int64_t> heads, kv_heads, widths;
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      const LayerTensors& layer = spec.layers[i];
      const bool attends = layer.attention.present();
      const std::int64_t width =
          layer.intermediate_size > 0 ? layer.intermediate_size : spec.intermediate_size;
      heads.push_back(attends ? spec.query_heads : 0);
      kv_heads.push_back(attends ? spec.kv_heads[i] : 0);
      widths.push_back(layer.up.present() ? width : 0);
    }
    keys.counts("feed_forward_length", widths);
    keys.counts("attention.head_count", heads);
    keys.counts("attention.head_count_kv", kv_heads);
  }
  keys.count("attention.key_length", spec.head_dim);
  keys.count("attention.value_length", spec.head_dim);
}

void put_recorded_scaling(Keys& keys, const RopeScaling& scaling) {
  const Json record = {{"rope_type", "llama3"},
                       {"factor", scaling.factor},
                       {"original_max_position_embeddings", scaling.original_positions},
                       {"low_freq_factor", scaling.low_frequency_factor},
                       {"high_freq_factor", scaling.high_frequency_factor}};
  keys.metadata().set_string("regroup.rope_scaling", record.dump());
}

void put_rope(Keys& keys, const RopeSpec& rope) {
  keys.count("rope.dimension_count", rope.rotary_dim);
  keys.number("rope.freq_base", rope.theta);
  const RopeScaling& scaling = rope.scaling;
  switch (scaling.kind) {
    case RopeScaling::Kind::kLinear:
      keys.text("rope.scaling.type", "linear");
      keys.number("rope.scaling.factor", scaling.factor);
      break;
    case RopeScaling::Kind::kYarn: {
      keys.text("rope.scaling.type", "yarn");
      keys.number("rope.scaling.factor", scaling.factor);
      keys.count("rope.scaling.original_context_length",
                 static_cast<std::int64_t>(scaling.original_positions));
      // llama.cpp multiplies this with the attention factor of the paper.
      const double usual = scaling.factor <= 1.0 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0;
      keys.number("rope.scaling.attn_factor", scaling.attention_factor / usual);
      break;
    }
    case RopeScaling::Kind::kLlama3: put_recorded_scaling(keys, scaling); break;
    case RopeScaling::Kind::kNone:
    case RopeScaling::Kind::kDynamic: break;
  }
}

}  // namespace

GgufMetadata gguf_metadata_for(const ModelSpec& spec) {
  const GgufGraph& graph = graph_for(spec);
  Keys keys(graph.architecture);
  put_sizes(keys, spec, graph);
  keys.number(graph.norm == NormKind::kRmsNorm ? "attention.layer_norm_rms_epsilon"
                                               : "attention.layer_norm_epsilon",
              spec.norm_epsilon);
  if (spec.positions == PositionKind::kRope) {
    put_rope(keys, spec.rope);
  }
  if (graph.max_alibi_bias) {
    keys.number("attention.max_alibi_bias",
                spec.positions == PositionKind::kAlibi ? spec.alibi.bias_max : 0.0);
  }
  if (spec.clip_qkv) {
    keys.number("attention.clamp_kqv", *spec.clip_qkv);
  }
  if (graph.residual == Residual::kByKey || graph.residual == Residual::kByMlpNorm) {
    keys.flag("use_parallel_residual", spec.parallel_residual);
  }
  return std::move(keys.metadata());
}

GgufParts gguf_parts_for(const ModelSpec& spec) {
  const GgufGraph& graph = graph_for(spec);
  GgufParts parts = parts_in(spec);
  parts.fused_qkv = graph.fused_qkv == Presence::kAlways;  // else apart, which older loaders take
  parts.second_norm = has_second_norm(spec, graph);
  return parts;
}

std::vector<std::string> gguf_differences(const ModelSpec& spec) {
  std::vector<std::string> differences;
  if (spec.activation == Activation::kGeluErf) {
    differences.emplace_back("llama.cpp computes GELU in its tanh form, the model in erf's");
  }
  if (spec.sliding_window && spec.max_positions.value_or(kAssumedContext) > *spec.sliding_window) {
    differences.push_back(fmt::format(
        "llama.cpp slides no window in this architecture: the context is cut to its {} tokens",
        *spec.sliding_window));
  }
  if (!spec.max_positions) {
    differences.push_back(
        fmt::format("the model names no context length; {} is written", kAssumedContext));
  }
  return differences;
}

std::vector<float> gguf_rope_factors(const RopeSpec& rope) {
  RopeSpec plain = rope;
  plain.scaling = {};
  const std::vector<double> before = rope_frequencies(plain), after = rope_frequencies(rope);
  std::vector<float> factors;
  for (std::size_t i = 0; i < before.size(); ++i) {
    factors.push_back(static_cast<float>(before[i] / after[i]));
  }
  return factors;
}

}  // namespace regroup

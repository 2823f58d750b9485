// Finds the graph of llama.cpp that computes a ModelSpec, and writes its hyper-parameters.
#include <algorithm>
#include <cmath>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/families/gguf_model.h"
#include "formats/spec/alibi.h"

namespace regroup {
namespace {

// For models that name no context length. llama.cpp needs one.
constexpr std::int64_t kAssumedContext = 2048;

const GgufGraph& graph_for(const ModelSpec& spec) {
  std::vector<const GgufGraph*> order;
  for (const GgufGraph& graph : gguf_graphs()) {
    order.push_back(&graph);
  }
  const auto distance = [&](const GgufGraph* graph) {
    return graph->made_for == spec.architecture ? 0 : graph->family == spec.family ? 1 : 2;
  };
  std::ranges::stable_sort(order, {}, distance);
  const auto fits = std::ranges::find_if(
      order, [&](const GgufGraph* graph) { return gguf_obstacle(spec, *graph).empty(); });
  if (fits != order.end()) {
    return **fits;
  }
  std::string reasons;
  for (const GgufGraph* graph : order) {
    if (graph->family == spec.family || reasons.empty()) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", graph->architecture,
                             gguf_obstacle(spec, *graph));
    }
  }
  throw_usage("no graph of llama.cpp computes this {} model (obstacles in {})", spec.family,
              reasons);
}

std::int64_t context_of(const ModelSpec& spec) {
  const std::int64_t context = spec.max_positions.value_or(kAssumedContext);
  // No graph here has a sliding window. For contexts up to its length, the results are the same.
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
    const bool of_experts = spec.routing.experts > 0 && !graph.experts.own_width;
    keys.count("feed_forward_length",
               of_experts ? spec.routing.intermediate_size : spec.intermediate_size);
    keys.count("attention.head_count", spec.query_heads);
    keys.count("attention.head_count_kv", spec.kv_heads.front());
  } else {
    std::vector<std::int64_t> heads, kv_heads, widths;
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      const LayerTensors& layer = spec.layers[i];
      const bool attends = layer.attention.present();
      heads.push_back(attends ? spec.query_heads : 0);
      kv_heads.push_back(attends ? spec.kv_heads[i] : 0);
      widths.push_back(layer.up.present() ? spec.width_of(layer) : 0);
    }
    keys.counts("feed_forward_length", widths);
    keys.counts("attention.head_count", heads);
    keys.counts("attention.head_count_kv", kv_heads);
  }
  keys.count("attention.key_length", spec.head_dim);
  keys.count("attention.value_length", spec.head_dim);
}

void put_experts(Keys& keys, const ModelSpec& spec, const GgufExperts& graph) {
  const ExpertRouting& routing = spec.routing;
  keys.count("expert_count", routing.experts);
  keys.count("expert_used_count", routing.per_token);
  if (graph.own_width) {
    keys.count("expert_feed_forward_length", routing.intermediate_size);
  }
  const std::int64_t shared = spec.layers.back().intermediate_size;
  if (graph.shared_gate) {
    keys.count("expert_shared_feed_forward_length", shared);
  } else if (graph.shared) {
    keys.count("expert_shared_count", shared / routing.intermediate_size);
    keys.number("expert_weights_scale", routing.scale);
  }
  if (graph.leading_dense) {
    keys.count("leading_dense_block_count", leading_dense_layers(spec));
  }
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
      // llama.cpp multiplies this by the paper's attention factor.
      const double usual = scaling.factor <= 1.0 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0;
      keys.number("rope.scaling.attn_factor", scaling.attention_factor / usual);
      break;
    }
    case RopeScaling::Kind::kLlama3: put_recorded_scaling(keys, scaling); break;
    case RopeScaling::Kind::kNone:
    case RopeScaling::Kind::kDynamic:
    case RopeScaling::Kind::kLongRope: break;
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
  if (spec.routing.experts > 0) {
    put_experts(keys, spec, graph.experts);
  }
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
  if (graph.multipliers) {
    const double usual = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
    keys.number("embedding_scale", spec.embedding_scale);
    keys.number("residual_scale", spec.residual_scale);
    keys.number("attention.scale", spec.attention_scale.value_or(usual));
    keys.number("logit_scale", 1.0 / spec.output_scale);
  } else if (graph.logit_scale) {
    keys.number("logit_scale", spec.output_scale);
  }
  if (graph.residual == Residual::kByKey || graph.residual == Residual::kByMlpNorm) {
    keys.flag("use_parallel_residual", spec.parallel_residual);
  }
  return std::move(keys.metadata());
}

GgufParts gguf_parts_for(const ModelSpec& spec) {
  const GgufGraph& graph = graph_for(spec);
  GgufParts parts = gguf_parts_of(spec);
  // Where a graph reads both, older loaders only read separate tensors.
  parts.fused_qkv = graph.fused_qkv == Presence::kAlways;
  parts.second_norm = graph.second_norm && parts.mlp_norm;
  if (parts.rope_factors) {
    const std::vector<float> factors = gguf_rope_factors(spec.rope);
    parts.rope_divisors.assign(factors.begin(), factors.end());
  }
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

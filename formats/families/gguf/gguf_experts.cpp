#include "formats/families/gguf/gguf_experts.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/families/gguf/gguf_parts.h"

namespace regroup {
namespace {

constexpr std::int64_t kMaxGgufExperts = 1 << 14;
constexpr std::int64_t kSoftmax = 1;  // expert_gating_func

// Graphs with a width of their own assume feed_forward_length / expert_used_count without the key.
std::int64_t expert_width(const ModelSpec& spec, const GgufHyperparameters& parameters,
                          const GgufExperts& graph) {
  if (!graph.own_width) {
    return spec.intermediate_size;
  }
  if (graph.leading_dense) {
    return parameters.count("expert_feed_forward_length");
  }
  return parameters.optional_count("expert_feed_forward_length")
      .value_or(spec.intermediate_size / spec.routing.per_token);
}

std::int64_t shared_width(const ModelSpec& spec, const GgufHyperparameters& parameters,
                          const GgufExperts& graph) {
  if (graph.shared_gate) {
    return parameters.optional_count("expert_shared_feed_forward_length")
        .value_or(spec.intermediate_size);
  }
  const std::int64_t count = parameters.count("expert_shared_count");
  if (count > kMaxGgufExperts) {
    throw_bad_input("{}: {} is {}, at most {} allowed", parameters.where(),
                    parameters.key("expert_shared_count"), count, kMaxGgufExperts);
  }
  return count * spec.routing.intermediate_size;
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

}  // namespace

std::int64_t read_gguf_experts(ModelSpec& spec, const GgufHyperparameters& parameters,
                               const GgufGraph& graph) {
  const GgufMetadata& metadata = parameters.metadata();
  if (metadata.count(parameters.key("expert_count")).value_or(0) == 0) {
    return 0;
  }
  ExpertRouting& routing = spec.routing;
  routing.experts = parameters.count("expert_count");
  routing.per_token = parameters.count("expert_used_count");
  if (routing.experts > kMaxGgufExperts || routing.per_token > routing.experts) {
    throw_bad_input("{}: {} of {} experts per token, allowed are at most all of {}",
                    parameters.where(), routing.per_token, routing.experts, kMaxGgufExperts);
  }
  routing.normalised = graph.experts.normalised;
  const double scale = parameters.number_or("expert_weights_scale", 0.0);
  routing.scale = scale == 0.0 ? 1.0 : scale;  // llama.cpp ignores a scale of 0
  routing.intermediate_size = expert_width(spec, parameters, graph.experts);
  if (metadata.count(parameters.key("expert_gating_func")).value_or(kSoftmax) != kSoftmax) {
    spec.not_computable = "experts chosen by another function than softmax";
  }
  if (!graph.experts.shared &&
      (metadata.count(parameters.key("expert_shared_count")).value_or(0) > 0 ||
       metadata.count(parameters.key("expert_shared_feed_forward_length")).value_or(0) > 0)) {
    spec.not_computable = "a shared expert in this architecture";
  }
  const std::int64_t dense =
      graph.experts.leading_dense
          ? metadata.count(parameters.key("leading_dense_block_count")).value_or(0)
          : 0;
  const std::int64_t layers = spec.layer_count();
  if (dense >= layers) {
    throw_bad_input("{}: {} is {}, less than {} layers are allowed", parameters.where(),
                    parameters.key("leading_dense_block_count"), dense, layers);
  }
  for (auto i = static_cast<std::size_t>(dense); graph.experts.shared && i < spec.layers.size();
       ++i) {
    spec.layers[i].intermediate_size = shared_width(spec, parameters, graph.experts);
  }
  return dense;
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
  const bool grouped = std::any_of(spec.kv_heads.begin(), spec.kv_heads.end(),
                                   [&](std::int64_t heads) { return heads != spec.query_heads; });
  if (graph.whole_k_norm && grouped) {
    return "fewer kv heads than query heads, for which llama.cpp's norm of keys is too wide";
  }
  return obstacle_in_expert_layers(spec, graph.experts);
}

}  // namespace regroup

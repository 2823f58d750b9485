// Checks the settings that run.c of llama2.c fixes, because the format has no field for them.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "formats/llama2c/llama2c.h"

namespace regroup {
namespace {

// Collects the reasons that apply.
class Reasons {
 public:
  void add_if(bool holds, std::string reason) {
    if (holds) {
      reasons_.push_back(std::move(reason));
    }
  }
  std::vector<std::string> take() { return std::move(reasons_); }

 private:
  std::vector<std::string> reasons_;
};

void check_positions(Reasons& reasons, const ModelSpec& spec) {
  if (spec.positions != PositionKind::kRope) {
    reasons.add_if(true, fmt::format("its positions are {}, not rope", name_of(spec.positions)));
    return;
  }
  reasons.add_if(spec.rope.theta != 10000.0,
                 fmt::format("rope_theta is {}, not 10000", spec.rope.theta));
  reasons.add_if(spec.rope.scaling.kind != RopeScaling::Kind::kNone, "RoPE is scaled");
  reasons.add_if(
      spec.rope.rotary_dim != spec.head_dim,
      fmt::format("RoPE rotates {} of {} dimensions", spec.rope.rotary_dim, spec.head_dim));
}

void check_sizes(Reasons& reasons, const ModelSpec& spec) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  reasons.add_if(spec.hidden_size != spec.query_heads * spec.head_dim,
                 fmt::format("{} heads of {} dimensions are not its {} features", spec.query_heads,
                             spec.head_dim, spec.hidden_size));
  reasons.add_if(spec.head_dim % 2 != 0,
                 fmt::format("its heads have {} dimensions, an odd number", spec.head_dim));
  reasons.add_if(spec.layers.empty() || spec.kv_heads.empty(), "it has no layers");
  const std::vector<std::int64_t>& heads = spec.kv_heads;
  reasons.add_if(
      std::adjacent_find(heads.begin(), heads.end(), std::not_equal_to<>()) != heads.end(),
      "its layers differ in kv heads");
  reasons.add_if(
      std::any_of(heads.begin(), heads.end(),
                  [&](std::int64_t count) { return count < 1 || spec.query_heads % count != 0; }),
      "its query heads are not a multiple of its kv heads");
  reasons.add_if(std::max({spec.hidden_size, spec.intermediate_size, spec.vocab_size}) > kMost,
                 "a size is over 2^31 - 1");
  reasons.add_if(spec.embedding_width() != spec.hidden_size || spec.project_in.present() ||
                     spec.project_out.present(),
                 "its embeddings are projected");
}

void check_norms(Reasons& reasons, const ModelSpec& spec) {
  reasons.add_if(spec.norm != NormKind::kRmsNorm || spec.norm_without_parameters,
                 "its norms are not RMSNorm with weights");
  reasons.add_if(spec.norm_epsilon != 1e-5,
                 fmt::format("its norms' epsilon is {}, not 1e-05", spec.norm_epsilon));
  reasons.add_if(spec.norm_placement != NormPlacement::kBefore || spec.residual_after_norm,
                 "its norms are not before attention and MLP");
  reasons.add_if(spec.norm_weight_offset != 0.0, "its norms' weights have an offset");
  reasons.add_if(spec.qk_norm != QkNorm::kNone, "queries and keys are normalised");
  reasons.add_if(spec.embedding_norm.present(), "its embeddings are normalised");
}

void check_layers(Reasons& reasons, const ModelSpec& spec) {
  const auto any = [&](auto holds) {
    return std::any_of(spec.layers.begin(), spec.layers.end(), holds);
  };
  reasons.add_if(any([](const LayerTensors& layer) { return !layer.attention.present(); }),
                 "layers lack attention");
  reasons.add_if(any([](const LayerTensors& layer) { return layer.without_rope; }),
                 "layers lack RoPE");
  reasons.add_if(spec.routing.experts > 0, "it has experts");
  reasons.add_if(spec.routing.experts == 0 &&
                     any([](const LayerTensors& layer) { return !layer.gate.present(); }),
                 "its MLP has no gate");
  reasons.add_if(any([&](const LayerTensors& layer) {
                   return layer.intermediate_size != 0 &&
                          layer.intermediate_size != spec.intermediate_size;
                 }),
                 "its layers differ in the MLP's size");
  reasons.add_if(any([](const LayerTensors& layer) {
                   const AttentionLayout& attention = layer.attention;
                   const auto biased = [](const LinearTensors& linear) {
                     return !linear.bias.empty();
                   };
                   return biased(attention.q) || biased(attention.k) || biased(attention.v) ||
                          biased(attention.o) || biased(layer.gate) || biased(layer.up) ||
                          biased(layer.down) || !layer.attention_norm.bias.empty() ||
                          !layer.mlp_norm.bias.empty();
                 }) ||
                     !spec.lm_head_bias.empty() || !spec.final_norm.bias.empty(),
                 "it has biases");
}

}  // namespace

std::vector<std::string> llama2c_obstacles(const ModelSpec& spec) {
  Reasons reasons;
  reasons.add_if(!spec.not_computable.empty(), spec.not_computable);
  reasons.add_if(spec.has_encoder() || !spec.causal, "it is not decoder-only");
  check_positions(reasons, spec);
  check_sizes(reasons, spec);
  check_norms(reasons, spec);
  check_layers(reasons, spec);
  reasons.add_if(spec.activation != Activation::kSilu, "its activation is not SiLU");
  reasons.add_if(spec.parallel_residual, "attention and MLP are parallel");
  reasons.add_if(spec.sliding_window.has_value(), "its attention has a window");
  reasons.add_if(spec.clip_qkv.has_value(), "queries, keys and values are clamped");
  reasons.add_if(spec.attention_softcap || spec.logit_softcap, "scores or logits are soft-capped");
  reasons.add_if(spec.attention_scale.has_value(), "its attention has a custom scale");
  reasons.add_if(
      spec.embedding_scale != 1.0 || spec.output_scale != 1.0 || spec.residual_scale != 1.0,
      "its embeddings, residuals or outputs are scaled");
  reasons.add_if(spec.token_types != 0 || !spec.position_embedding.empty(),
                 "it adds to its token embeddings");
  reasons.add_if(spec.head_transform.present() || spec.head_norm.present(),
                 "it has layers before its output embedding");
  return reasons.take();
}

}  // namespace regroup

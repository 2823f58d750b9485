#include "formats/families/gguf/gguf_parts.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/config/decoder_sizes.h"
#include "formats/families/gguf/gguf_hyperparameters.h"

namespace regroup {
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

}  // namespace regroup

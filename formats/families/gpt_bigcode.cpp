// GPTBigCode (Starcoder): GPT-2's graph with plain linear maps; one kv head, or [H, 3, d].
#include "formats/families/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {

ModelSpec describe_gpt_bigcode(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  spec.hidden_size = config.count({"n_embd", "hidden_size"});
  set_heads(spec, config, {"n_head", "num_attention_heads"}, std::nullopt);
  const std::int64_t layers =
      read_layer_count(config, {"n_layer", "num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.optional_count({"n_inner"}).value_or(4 * spec.hidden_size);
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.count({"n_positions", "max_position_embeddings"});
  const bool multi_query = config.flag_or({"multi_query"}, true);
  spec.kv_heads = config.kv_heads("num_key_value_heads", layers, spec.query_heads,
                                  multi_query ? 1 : spec.query_heads);
  spec.multi_query_key = "multi_query";
  spec.positions = PositionKind::kLearned;
  if (!config.flag_or({"scale_attn_weights"}, true)) {
    spec.attention_scale = 1.0;
  }
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-5);
  spec.activation = activation_from_name(
      config.text_or({"activation_function"}, "gelu_pytorch_tanh"), config.where());

  const std::string prefix = find_prefix(checkpoint, {"transformer.", ""}, "wte.weight");
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string name = prefix + "h." + std::to_string(i);
    const LinearTensors fused = linear_at(name + ".attn.c_attn", true);
    LayerTensors layer;
    layer.attention_norm = norm_at(name + ".ln_1", true);
    // q‖k‖v of one kv head is the per-group packing with one group.
    layer.attention = {
        Packing::kPerGroup, fused, fused, fused, linear_at(name + ".attn.c_proj", true), {}, {}};
    layer.mlp_norm = norm_at(name + ".ln_2", true);
    layer.up = linear_at(name + ".mlp.c_fc", true);
    layer.down = linear_at(name + ".mlp.c_proj", true);
    spec.layers.push_back(std::move(layer));
  }
  spec.token_embedding = prefix + "wte.weight";
  spec.position_embedding = prefix + "wpe.weight";
  spec.final_norm = norm_at(prefix + "ln_f", true);
  spec.lm_head = config.flag_or({"tie_word_embeddings"}, true) ? "" : "lm_head.weight";
  return spec;
}

}  // namespace regroup

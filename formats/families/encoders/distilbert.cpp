// DistilBERT: BERT's block under names of its own, without token types.
#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

LayerTensors distilbert_layer(const std::string& name) {
  LayerTensors layer;
  const std::string attention = name + ".attention.";
  layer.attention = {Packing::kSeparate,
                     linear_at(attention + "q_lin", true),
                     linear_at(attention + "k_lin", true),
                     linear_at(attention + "v_lin", true),
                     linear_at(attention + "out_lin", true),
                     {},
                     {}};
  layer.attention_norm = norm_at(name + ".sa_layer_norm", true);
  layer.up = linear_at(name + ".ffn.lin1", true);
  layer.down = linear_at(name + ".ffn.lin2", true);
  layer.mlp_norm = norm_at(name + ".output_layer_norm", true);
  return layer;
}

void read_distilbert_sizes(ModelSpec& spec, const ConfigReader& config,
                           const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"dim"});
  set_heads(spec, config, {"n_heads"}, std::nullopt);
  read_stack_sizes(spec, config, {"n_layers"}, checkpoint);
  spec.intermediate_size = config.count({"hidden_dim"});
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
}

}  // namespace

ModelSpec describe_distilbert(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_distilbert_sizes(spec, config, checkpoint);
  spec.causal = false;
  spec.positions = PositionKind::kLearned;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-12;
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.activation = activation_from_name(config.text_or({"activation"}, "gelu"), config.where());
  const std::string start =
      find_prefix(checkpoint, {"distilbert.", ""}, "embeddings.word_embeddings.weight");
  spec.token_embedding = start + "embeddings.word_embeddings.weight";
  // Sinusoids, if the config has them, are stored as well.
  spec.position_embedding = start + "embeddings.position_embeddings.weight";
  spec.embedding_norm = norm_at(start + "embeddings.LayerNorm", true);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = distilbert_layer(start + "transformer.layer." + std::to_string(i));
  }
  spec.head_transform = linear_at("vocab_transform", true);
  spec.head_norm = norm_at("vocab_layer_norm", true);
  spec.lm_head_bias = "vocab_projector.bias";
  name_output(spec, config, "vocab_projector.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup

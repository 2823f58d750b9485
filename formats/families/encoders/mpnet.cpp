// MPNet: BERT's block with a table of positions and a relative bias that all layers share.
#include "formats/config/decoder_sizes.h"
#include "formats/families/encoders/encoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

constexpr std::int64_t kBuckets = 32;  // transformers has no other number, whatever the config says
constexpr std::int64_t kFirstRow = 2;  // of the table of positions; padding has the row before

LayerTensors mpnet_layer(const std::string& name) {
  LayerTensors layer;
  const std::string attention = name + ".attention.";
  layer.attention = {Packing::kSeparate,
                     linear_at(attention + "attn.q", true),
                     linear_at(attention + "attn.k", true),
                     linear_at(attention + "attn.v", true),
                     linear_at(attention + "attn.o", true),
                     {},
                     {}};
  layer.attention_norm = norm_at(attention + "LayerNorm", true);
  layer.up = linear_at(name + ".intermediate.dense", true);
  layer.down = linear_at(name + ".output.dense", true);
  layer.mlp_norm = norm_at(name + ".output.LayerNorm", true);
  return layer;
}

void read_mpnet_positions(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  spec.positions = PositionKind::kRelativeBias;
  spec.relative_bias.buckets =
      config.optional_count({"relative_attention_num_buckets"}).value_or(kBuckets);
  if (spec.relative_bias.buckets != kBuckets) {
    spec.not_computable = "relative_attention_num_buckets other than 32";
  }
  spec.layers.front().relative_bias = prefix + "encoder.relative_attention_bias.weight";
  spec.position_embedding = prefix + "embeddings.position_embeddings.weight";
  skip_first_positions(spec, config, kFirstRow);
}

}  // namespace

ModelSpec describe_mpnet(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_encoder_sizes(spec, config, checkpoint);
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-12);
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "gelu"), config.where());
  const std::string prefix =
      find_prefix(checkpoint, {"mpnet.", ""}, "embeddings.word_embeddings.weight");
  spec.token_embedding = prefix + "embeddings.word_embeddings.weight";
  spec.embedding_norm = norm_at(prefix + "embeddings.LayerNorm", true);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = mpnet_layer(prefix + "encoder.layer." + std::to_string(i));
  }
  read_mpnet_positions(spec, config, prefix);
  spec.head_transform = linear_at("lm_head.dense", true);
  spec.head_activation = Activation::kGeluErf;  // regardless of hidden_act
  spec.head_norm = norm_at("lm_head.layer_norm", true);
  name_output(spec, config, "lm_head.decoder.weight", /*tied=*/true);
  name_output_bias(spec, checkpoint, "lm_head.decoder.bias", "lm_head.bias");
  return spec;
}

}  // namespace regroup

// OPT: learned positions, where the embedding has two rows before that of the first position.
// OPT-350m normalises after the residual and projects narrower embeddings to the hidden size.
// BioGPT and XGLM have OPT's block and scale their embeddings; XGLM's positions are sinusoids.
#include <cmath>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {
namespace {

void read_opt_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, std::nullopt);
  read_stack_sizes(spec, config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"ffn_dim"});
  spec.embedding_size = config.optional_count({"word_embed_proj_dim"}).value_or(spec.hidden_size);
}

LayerTensors opt_layer(const std::string& name, bool bias) {
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".self_attn_layer_norm", true);
  layer.attention = {Packing::kSeparate,
                     linear_at(name + ".self_attn.q_proj", bias),
                     linear_at(name + ".self_attn.k_proj", bias),
                     linear_at(name + ".self_attn.v_proj", bias),
                     linear_at(name + ".self_attn.out_proj", bias),
                     {},
                     {}};
  layer.mlp_norm = norm_at(name + ".final_layer_norm", true);
  layer.up = linear_at(name + ".fc1", bias);
  layer.down = linear_at(name + ".fc2", bias);
  return layer;
}

void name_opt_tensors(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  const std::string prefix =
      find_prefix(checkpoint, {"model.decoder.", "decoder."}, "embed_tokens.weight");
  const bool bias = config.flag_or({"enable_bias"}, true);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = opt_layer(prefix + "layers." + std::to_string(i), bias);
  }
  spec.token_embedding = prefix + "embed_tokens.weight";
  spec.position_embedding = prefix + "embed_positions.weight";
  if (spec.embedding_size != spec.hidden_size) {
    spec.project_in = linear_at(prefix + "project_in", false);
    spec.project_out = linear_at(prefix + "project_out", false);
  }
  if (spec.norm_placement == NormPlacement::kBefore &&
      !config.flag_or({"_remove_final_layer_norm"}, false)) {
    spec.final_norm = norm_at(prefix + "final_layer_norm", true);
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
}

void read_biogpt_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, std::nullopt);
  read_stack_sizes(spec, config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
}

void read_xglm_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"d_model", "hidden_size"});
  set_heads(spec, config, {"attention_heads", "num_attention_heads"}, std::nullopt);
  read_stack_sizes(spec, config, {"num_layers", "num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"ffn_dim"});
}

}  // namespace

ModelSpec describe_biogpt(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_biogpt_sizes(spec, config, checkpoint);
  spec.positions = PositionKind::kLearned;
  spec.position_offset = 2;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;  // transformers ignores layer_norm_eps
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "gelu"), config.where());
  if (config.flag_or({"scale_embedding"}, true)) {
    spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  }
  const std::string prefix = find_prefix(checkpoint, {"biogpt.", ""}, "embed_tokens.weight");
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = opt_layer(prefix + "layers." + std::to_string(i), true);
  }
  spec.token_embedding = prefix + "embed_tokens.weight";
  spec.position_embedding = prefix + "embed_positions.weight";
  spec.final_norm = norm_at(prefix + "layer_norm", true);
  name_output(spec, config, "output_projection.weight", /*tied=*/true);
  return spec;
}

ModelSpec describe_xglm(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_xglm_sizes(spec, config, checkpoint);
  spec.positions = PositionKind::kSinusoidal;
  spec.position_offset = 2;
  spec.sinusoids.steps = spec.hidden_size / 2 - 1;
  if (spec.hidden_size % 2 != 0 || spec.sinusoids.steps < 1) {
    throw_bad_input("{}: d_model is {}: sinusoidal positions need an even number above 2",
                    config.where(), spec.hidden_size);
  }
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;
  spec.activation =
      activation_from_name(config.text_or({"activation_function"}, "gelu"), config.where());
  if (config.flag_or({"scale_embedding"}, true)) {
    spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  }
  if (config.flag_or({"add_cross_attention"}, false)) {
    spec.not_computable = "add_cross_attention";
  }
  const std::string prefix = find_prefix(checkpoint, {"model.", ""}, "embed_tokens.weight");
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = opt_layer(prefix + "layers." + std::to_string(i), true);
  }
  spec.token_embedding = prefix + "embed_tokens.weight";
  spec.final_norm = norm_at(prefix + "layer_norm", true);
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

ModelSpec describe_opt(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_opt_sizes(spec, config, checkpoint);
  spec.positions = PositionKind::kLearned;
  spec.position_offset = 2;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;
  spec.activation =
      activation_from_name(config.text_or({"activation_function"}, "relu"), config.where());
  const bool norm_before = config.flag_or({"do_layer_norm_before"}, true);
  spec.norm_placement = norm_before ? NormPlacement::kBefore : NormPlacement::kAfterResidual;
  if (!config.flag_or({"layer_norm_elementwise_affine"}, true)) {
    spec.not_computable = "layer_norm_elementwise_affine = false";
  }
  name_opt_tensors(spec, config, checkpoint);
  return spec;
}

}  // namespace regroup

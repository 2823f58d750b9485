#include "formats/families/gpt_layout.h"

#include "formats/config/decoder_sizes.h"

namespace regroup {

std::string read_gpt_frame(ModelSpec& spec, const ConfigReader& config,
                           const Checkpoint& checkpoint, const std::string& default_activation) {
  spec.hidden_size = config.count({"n_embd", "hidden_size"});
  set_heads(spec, config, {"n_head", "num_attention_heads"}, std::nullopt);
  const std::int64_t layers =
      read_layer_count(config, {"n_layer", "num_hidden_layers"}, checkpoint);
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.intermediate_size = config.optional_count({"n_inner"}).value_or(4 * spec.hidden_size);
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"n_positions", "max_position_embeddings"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-5);
  spec.activation = activation_from_name(
      config.text_or({"activation_function"}, default_activation), config.where());

  const std::string prefix = find_prefix(checkpoint, {"transformer.", ""}, "wte.weight");
  spec.token_embedding = prefix + "wte.weight";
  spec.final_norm = norm_at(prefix + "ln_f", true);
  return prefix;
}

void use_learned_positions(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  spec.positions = PositionKind::kLearned;
  spec.max_positions = config.count({"n_positions", "max_position_embeddings"});
  spec.position_embedding = prefix + "wpe.weight";
}

}  // namespace regroup

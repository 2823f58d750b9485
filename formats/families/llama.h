// Shared by the families that use Llama's config keys and tensor names.
#pragma once

#include <string>

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"
#include "formats/spec/rope_config.h"

namespace regroup {

/// A family's defaults for absent config keys.
struct LlamaDefaults {
  std::int64_t kv_heads = 0;  ///< 0: the number of query heads
  std::int64_t head_dim = 0;  ///< 0: hidden_size / query heads
};

/// Reads hidden_size, num_attention_heads, head_dim, num_hidden_layers, vocab_size and
/// max_position_embeddings into `spec`; creates its layers without tensor names.
void read_llama_frame(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                      const LlamaDefaults& defaults = {});

/// The same, plus intermediate_size and num_key_value_heads.
void read_llama_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                      const LlamaDefaults& defaults = {});

/// Which parts have biases.
struct LlamaBiases {
  bool qkv = false;
  bool o = false;
  bool mlp = false;
  bool norm = false;
};

/// Fills in Llama's names: model.layers.N.self_attn.{q,k,v,o}_proj, input_layernorm,
/// post_attention_layernorm, mlp.{gate,up,down}_proj, model.embed_tokens, model.norm, and lm_head
/// unless the embeddings are tied (`tied_by_default` if the config does not say).
void name_llama_tensors(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                        const LlamaBiases& biases, bool tied_by_default = false);

/// The biases that attention_bias and mlp_bias name.
LlamaBiases llama_biases(const ConfigReader& config);

/// Describes a decoder with RMSNorm and RoPE without tensor names. Callers change what differs.
ModelSpec describe_llama_like(const ConfigReader& config, const Checkpoint& checkpoint,
                              const LlamaDefaults& defaults, double default_epsilon = 1e-6,
                              const RopeDefaults& rope = {});

/// Reads the window of Qwen's models: in none, all or some of their layers.
void read_qwen_window(ModelSpec& spec, const ConfigReader& config);

/// Adds the norms of each layer's queries and keys, q_norm and k_norm without biases.
void add_qk_norms(ModelSpec& spec, const Checkpoint& checkpoint, QkNorm kind);

/// "model.layers.3", or "layers.3" in models saved without their head.
std::string llama_layer_name(const Checkpoint& checkpoint, std::int64_t layer);

}  // namespace regroup

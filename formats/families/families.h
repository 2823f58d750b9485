// The families: what describes each, and what relatives share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// llama.cpp: separate q, k, v, o; RoPE; gated MLP.
ModelSpec describe_llama(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mistral(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen3(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_granite(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_smollm3(const ConfigReader& config, const Checkpoint& checkpoint);

// gemma.cpp, olmo.cpp: the same tensors with other norms; the newer ones with windows per layer.
ModelSpec describe_gemma(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gemma2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gemma3(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_olmo(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_olmo2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_olmo3(const ConfigReader& config, const Checkpoint& checkpoint);
// mixtures.cpp: Llama's attention, and experts in place of the MLP.
ModelSpec describe_olmoe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen2_moe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen3_moe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mixtral(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_granitemoe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_deepseek(const ConfigReader& config, const Checkpoint& checkpoint);

// llama_relatives.cpp: the same attention tensors, but LayerNorm and other blocks.
ModelSpec describe_phi(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_stablelm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_starcoder2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_nemotron(const ConfigReader& config, const Checkpoint& checkpoint);

// cohere.cpp: a parallel block with one LayerNorm.
ModelSpec describe_cohere(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_cohere2(const ConfigReader& config, const Checkpoint& checkpoint);

// phi3.cpp: Llama's block with fused projections.
ModelSpec describe_phi3(const ConfigReader& config, const Checkpoint& checkpoint);

// baichuan.cpp, minicpm.cpp, qwen.cpp, internlm.cpp, chatglm.cpp: models with code of their own,
// close to Llama.
ModelSpec describe_baichuan(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_minicpm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_internlm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_internlm2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_chatglm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_glm(const ConfigReader& config, const Checkpoint& checkpoint);  // chatglm.cpp

// decilm.cpp: Llama's tensors with a config per layer.
ModelSpec describe_nemotron_nas(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_deci(const ConfigReader& config, const Checkpoint& checkpoint);

// One file each.
ModelSpec describe_gpt2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gpt_bigcode(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gpt_neox(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gpt_neo(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gptj(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_codegen(const ConfigReader& config, const Checkpoint& checkpoint);  // gptj.cpp
ModelSpec describe_bloom(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mpt(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_falcon(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_persimmon(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_opt(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_biogpt(const ConfigReader& config, const Checkpoint& checkpoint);  // opt.cpp
ModelSpec describe_xglm(const ConfigReader& config, const Checkpoint& checkpoint);    // opt.cpp

// t5.cpp: encoder-decoder.
ModelSpec describe_t5(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mt5(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_umt5(const ConfigReader& config, const Checkpoint& checkpoint);

// bart.cpp: encoder-decoders with learned positions.
ModelSpec describe_bart(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mbart(const ConfigReader& config, const Checkpoint& checkpoint);

// marian.cpp: the same blocks with sinusoidal positions.
ModelSpec describe_marian(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_m2m_100(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_pegasus(const ConfigReader& config, const Checkpoint& checkpoint);

// whisper.cpp: speech to text.
ModelSpec describe_whisper(const ConfigReader& config, const Checkpoint& checkpoint);

// bert.cpp: encoder-only.
ModelSpec describe_bert(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_roberta(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_electra(const ConfigReader& config, const Checkpoint& checkpoint);

// distilbert.cpp, mpnet.cpp, nomic_bert.cpp: BERT's block under other names or with other
// positions.
ModelSpec describe_distilbert(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mpnet(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_nomic_bert(const ConfigReader& config, const Checkpoint& checkpoint);

// modernbert.cpp: encoder-only, norms before attention and MLP.
ModelSpec describe_modernbert(const ConfigReader& config, const Checkpoint& checkpoint);

// Shared by the families that use Llama's config keys and tensor names.

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

// Shared by GPT-2, GPTBigCode and GPT-J: config keys, and the tensor names outside the layers.

/// Reads n_embd, n_head, n_layer, n_inner, vocab_size, n_positions, layer_norm_epsilon and
/// activation_function; creates the layers without tensor names; names wte and ln_f. Returns the
/// prefix of all tensor names, "transformer." or "".
std::string read_gpt_frame(ModelSpec& spec, const ConfigReader& config,
                           const Checkpoint& checkpoint, const std::string& default_activation);

/// Sets learned positions (wpe). Throws kBadInput if the config lacks their number.
void use_learned_positions(ModelSpec& spec, const ConfigReader& config, const std::string& prefix);

// Shared by the families whose layers have experts.

/// A family's keys and defaults for how tokens are given to experts.
struct RoutingDefaults {
  std::string_view experts_key = "num_experts";
  std::int64_t experts = 0, per_token = 0;  ///< 0: the key must be present
  std::string_view balance_key = "router_aux_loss_coef";
  double balance_weight = 0.001;
};

/// Reads the number of experts, num_experts_per_tok and the factor of the load-balancing loss. The
/// experts are `intermediate_size` wide.
void read_routing(ModelSpec& spec, const ConfigReader& config, const RoutingDefaults& defaults,
                  std::int64_t intermediate_size);

/// What a family calls the parts of a layer's experts, relative to the MLP's name.
struct ExpertNames {
  std::string_view mlp = "mlp";
  std::string_view router = "gate";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";  ///< of one expert
  bool always_stacked = false;
  std::string_view gate_up_of_all = "experts.gate_up_proj";  ///< [E, 2·width, D]
  std::string_view down_of_all = "experts.down_proj";        ///< [E, D, width]
};

/// Replaces the MLPs of the layers marked in `sparse` by experts: mlp.gate and
/// mlp.experts.E.{gate,up,down}_proj, or two tensors of all experts if the checkpoint has these.
void name_experts(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                  const std::vector<bool>& sparse, const ExpertNames& names = {});

/// Sets the tensors of the shared expert, mlp.`name`.{gate,up,down}_proj, in each layer that
/// `sparse` marks. `width`: its intermediate size.
void name_shared_expert(ModelSpec& spec, const Checkpoint& checkpoint,
                        const std::vector<bool>& sparse, std::string_view name, std::int64_t width);

// The stacks of BART and its relatives: an encoder and a decoder with separate projections.

/// Sets sizes, kv heads and layers (without names) from BART's keys, and what all relatives share:
/// LayerNorm, the activation (`absent` if there is no key), the scale of embeddings (√D if
/// scale_embedding, `scaled` if there is no key), the first token of the decoder. Throws kBadInput
/// if encoder and decoder have different numbers of heads.
struct BartDefaults {
  std::string activation = "gelu";
  bool scaled = false;
  std::int64_t start_token = 2;
};
void read_bart_config(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                      const BartDefaults& defaults);

/// What stacks differ in.
struct BartNames {
  std::string prefix;            ///< of encoder and decoder: "model." or ""
  bool final_norms = false;      ///< "layer_norm" at the end of both
  bool embedding_norms = false;  ///< "layernorm_embedding"
  bool key_bias = true;
};
void name_bart_stacks(ModelSpec& spec, const BartNames& names);

/// "model.", or "" for models saved without their head.
std::string bart_prefix(const Checkpoint& checkpoint);

/// Names the shared embedding and what is tied to it. An untied output makes the model not
/// computable by regroup.
void name_shared_embedding(ModelSpec& spec, const ConfigReader& config, const std::string& prefix);

/// Names final_logits_bias, [1, V], if it is stored. transformers never trains it.
void name_logits_bias(ModelSpec& spec, const Checkpoint& checkpoint);

/// Keys of transformers 3, which later versions ignore: a config that differs from the family's
/// block describes another model.
struct OldBlockKeys {
  bool normalize_before, add_final_layer_norm, normalize_embedding;
};
void check_old_keys(ModelSpec& spec, const ConfigReader& config, const OldBlockKeys& fixed);

// What the encoders of this folder have in common.

/// Sizes, heads and the mask token under BERT's names; attention in both directions, LayerNorm.
void read_encoder_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint);

}  // namespace regroup

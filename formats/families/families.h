// The families: what describes each, what relatives share, and parts of larger models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// Describes the models of one family. A row of registry.cpp names each of these.
using DescribeFamily = ModelSpec(const ModelConfig& config);

// llama.cpp: separate q, k, v, o; RoPE; gated MLP.
DescribeFamily describe_llama, describe_mistral, describe_qwen2, describe_qwen3, describe_granite,
    describe_smollm3;
// The same attention tensors, but LayerNorm and other blocks.
DescribeFamily describe_phi, describe_stablelm, describe_starcoder2, describe_nemotron,
    describe_cohere, describe_cohere2;
// Other names, or fused projections.
DescribeFamily describe_qwen, describe_phi3;

// gemma.cpp: Llama's tensors with other norms, scales or caps; the newer ones with windows per
// layer.
DescribeFamily describe_gemma, describe_gemma2, describe_gemma3, describe_olmo, describe_olmo2,
    describe_olmo3, describe_minicpm;

// mixtures.cpp: Llama's attention, and experts in place of the MLP.
DescribeFamily describe_olmoe, describe_qwen2_moe, describe_qwen3_moe, describe_mixtral,
    describe_granitemoe, describe_deepseek;

// internlm.cpp: joined projections, or a config per layer.
DescribeFamily describe_internlm, describe_internlm2, describe_persimmon, describe_nemotron_nas,
    describe_deci, describe_chatglm, describe_glm;

// gpt.cpp: GPT-2 and what came of it.
DescribeFamily describe_gpt2, describe_gpt_bigcode, describe_gpt_neox, describe_gpt_neo,
    describe_gptj, describe_codegen;

// bloom.cpp: ALiBi, or models that may have it.
DescribeFamily describe_bloom, describe_mpt, describe_falcon, describe_baichuan;

// t5.cpp, bart.cpp: encoder-decoders, and OPT and its relatives, which have BART's block.
DescribeFamily describe_t5, describe_mt5, describe_umt5;
DescribeFamily describe_bart, describe_mbart, describe_marian, describe_m2m_100, describe_pegasus,
    describe_whisper, describe_opt, describe_biogpt, describe_xglm;

// bert.cpp, modernbert.cpp: encoders alone.
DescribeFamily describe_bert, describe_roberta, describe_electra, describe_distilbert,
    describe_mpnet;
DescribeFamily describe_modernbert, describe_nomic_bert;

/// The first of these flags that is set otherwise than `usual`, such as "qk_ln = true"; empty if
/// there is none.
std::string unusual_flag(const ConfigReader& config,
                         std::initializer_list<std::pair<std::string_view, bool>> usual);

// Shared by the families that use Llama's config keys and tensor names.

/// A family's defaults for absent config keys.
struct LlamaDefaults {
  std::int64_t kv_heads = 0;  ///< 0: the number of query heads
  std::int64_t head_dim = 0;  ///< 0: hidden_size / query heads
};

/// Reads hidden_size, num_attention_heads, head_dim, num_hidden_layers, vocab_size and
/// max_position_embeddings into `spec`; creates its layers without tensor names.
void read_llama_frame(ModelSpec& spec, const ModelConfig& config,
                      const LlamaDefaults& defaults = {});

/// The same, plus intermediate_size and num_key_value_heads.
void read_llama_sizes(ModelSpec& spec, const ModelConfig& config,
                      const LlamaDefaults& defaults = {});

inline constexpr BlockNames kLlamaBlock{
    Packing::kSeparate,
    {"input_layernorm", "self_attn.*_proj", "self_attn.o_proj"},
    {"post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};

/// Names the tensors of all blocks, model.embed_tokens, model.norm, and lm_head unless the
/// embeddings are tied (`tied_by_default` if the config does not say).
void name_llama_tensors(ModelSpec& spec, const ModelConfig& config, const BlockBiases& biases,
                        bool tied_by_default = false, const BlockNames& block = kLlamaBlock);

/// The biases that attention_bias and mlp_bias name.
BlockBiases llama_biases(const ConfigReader& config);

/// Reads the epsilon and the activation of a block with RMSNorm.
void read_rms_block(ModelSpec& spec, const ConfigReader& config, double default_epsilon = 1e-6);

/// Describes a decoder with RMSNorm and RoPE without tensor names. Callers change what differs.
ModelSpec describe_llama_like(const ModelConfig& config, const LlamaDefaults& defaults,
                              double default_epsilon = 1e-6, const RopeDefaults& rope = {});

/// Reads the window of Qwen's models: in none, all or some of their layers.
void read_qwen_window(ModelSpec& spec, const ConfigReader& config);

/// Adds the norms of each layer's queries and keys, q_`name` and k_`name`.
void add_qk_norms(ModelSpec& spec, const ModelConfig& config, QkNorm kind,
                  const std::string& name = "norm", bool bias = false);

/// "model.layers.3", or "layers.3" in models saved without their head.
std::string llama_layer_name(const ModelConfig& config, std::size_t layer);

// What the encoders of this folder have in common.

/// Sizes, heads and the mask token under BERT's names; attention in both directions, LayerNorm.
void read_encoder_sizes(ModelSpec& spec, const ModelConfig& config);

/// The head that predicts masked tokens, apart from its norm. `decoder` adds a bias that some
/// checkpoints store as `bias`.
struct MaskedHeadNames {
  std::string transform, bias, decoder;
};
void name_masked_head(ModelSpec& spec, const ModelConfig& config, const MaskedHeadNames& names);

// The language model inside a vision or audio model, such as LLaVA's Llama: its part of the config
// and its tensors.

struct LanguagePart {
  std::string whole_model;        ///< model_type of the whole model
  std::vector<std::string> path;  ///< of the language model's object in config.json
  /// That object as a config of the language model alone: its model_type is a family's, and it has
  /// the values that the whole model's config class uses where the object has none.
  Json config;
  std::string not_computable;  ///< why text alone cannot be computed; empty if it can
};

/// The language model in a config of no known family. None if the config has no object for it, and
/// is none of the whole models that keep its keys at the top. Throws kBadInput if the object names
/// no model_type that is known.
std::optional<LanguagePart> find_language_part(const ModelConfig& config);

/// The language model's tensors of the checkpoint, under the names that they have in a language
/// model alone. Without files: they can be looked up but not read. Throws kBadInput if there are
/// none, unless the checkpoint has no files.
Checkpoint tensors_of_language_part(const ModelConfig& config);

/// `spec`, which describes the language model alone, as a part of the whole model: with the names
/// in the checkpoint and the paths in the whole config.
ModelSpec as_part(ModelSpec spec, const LanguagePart& part, const ModelConfig& config);

}  // namespace regroup

// Decoders that use ALiBi, or may.
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

// BLOOM: heads stored as [H, 3, d], ALiBi instead of position embeddings.

constexpr BlockNames kBloomBlock{
    Packing::kPerGroup,
    {"input_layernorm", "self_attention.query_key_value", "self_attention.dense"},
    {"post_attention_layernorm", {}, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}};

ModelSpec describe_bloom(const ModelConfig& config) {
  ModelSpec spec;
  read_stack_sizes(spec, config, {"hidden_size", "n_embed"}, {"n_head", "num_attention_heads"},
                   {"n_layer", "num_hidden_layers"});
  spec.intermediate_size = 4 * spec.hidden_size;
  spec.positions = PositionKind::kAlibi;
  read_layer_norm(spec, config, {"layer_norm_epsilon"});
  spec.activation = Activation::kGeluTanh;
  spec.residual_after_norm = config.flag_or({"apply_residual_connection_post_layernorm"}, false);

  const std::string prefix = name_stack(
      spec, config, {"transformer.", "word_embeddings", "h.", "ln_f"}, kBloomBlock, kAllBiases);
  spec.embedding_norm = norm_at(prefix + "word_embeddings_layernorm", true);
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

// MPT as transformers computes it: fused q‖k‖v, ALiBi, LayerNorm without biases.

namespace {

// Settings that MPT's own code reads and transformers' loader ignores. A model that uses them would
// be computed wrongly.
std::string unsupported_setting(const ConfigReader& config, const ConfigReader& attention) {
  const std::string flag = unusual_flag(
      attention,
      {{"alibi", true}, {"qk_ln", false}, {"prefix_lm", false}, {"rope", false}, {"qk_gn", false}});
  if (!flag.empty()) {
    return "attn_config." + flag;
  }
  if (attention.number_or({"sliding_window_size"}, -1.0) > 0.0) {
    return "attn_config.sliding_window_size";
  }
  const std::string norm = config.text_or({"norm_type"}, "layernorm");
  if (norm != "layernorm" && norm != "low_precision_layernorm") {
    return "norm_type " + printable(norm);
  }
  if (!config.flag_or({"no_bias"}, true)) {
    return "no_bias = false";
  }
  return config.find("logit_scale") != nullptr ? "logit_scale" : "";
}

void read_mpt_sizes(ModelSpec& spec, const ModelConfig& config, const ConfigReader& attention) {
  spec.hidden_size = config.count({"d_model", "hidden_size"});
  set_heads(spec, config, {"n_heads", "num_attention_heads"}, std::nullopt);
  read_layers(spec.layers, config, {"n_layers", "num_hidden_layers"});
  spec.intermediate_size =
      config.optional_count({"expansion_ratio"}).value_or(4) * spec.hidden_size;
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_seq_len"});
  spec.kv_heads =
      attention.kv_heads("kv_n_heads", spec.layer_count(), spec.query_heads, spec.query_heads);
  spec.kv_heads_key = {"attn_config", "kv_n_heads"};
}

void read_mpt_attention(ModelSpec& spec, const ConfigReader& attention) {
  spec.positions = PositionKind::kAlibi;
  spec.alibi.bias_max = attention.number_or({"alibi_bias_max"}, 8.0);
  const double clip = attention.number_or({"clip_qkv"}, 0.0);
  if (clip > 0.0) {
    spec.clip_qkv = clip;
  }
  spec.attention_scale = attention.optional_number({"softmax_scale"});
}

constexpr BlockNames kMptBlock{Packing::kQueryKeyValue,
                               {"norm_1", "attn.Wqkv", "attn.out_proj"},
                               {"norm_2", {}, "ffn.up_proj", "ffn.down_proj"}};

}  // namespace

ModelSpec describe_mpt(const ModelConfig& config) {
  const ConfigReader attention = config.object("attn_config");
  ModelSpec spec;
  read_mpt_sizes(spec, config, attention);
  read_mpt_attention(spec, attention);
  read_layer_norm(spec, config, {"layer_norm_epsilon"});
  spec.activation = Activation::kGeluErf;
  spec.not_computable = unsupported_setting(config, attention);
  name_stack(spec, config, {"transformer.", "wte", "blocks.", "norm_f"}, kMptBlock, {});
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

// Falcon: G groups of [H/G query heads, key, value] in all its layouts; ALiBi (RW) or RoPE.

namespace {

// The flags that distinguish Falcon's layouts. multi_query and parallel_attn are true by default.
struct FalconLayout {
  bool grouped = false;   // new_decoder_architecture: 40B, 180B, 11B
  bool parallel = false;  // attention and MLP in parallel
  bool two_norms = false;
  bool biases = false;
};

FalconLayout read_layout(const ConfigReader& config) {
  FalconLayout layout;
  layout.grouped = config.flag_or({"new_decoder_architecture"}, false);
  layout.parallel = config.flag_or({"parallel_attn"}, true);
  layout.biases = config.flag_or({"bias"}, false);
  if (layout.grouped && !layout.parallel) {
    throw_bad_input("{}: new_decoder_architecture with parallel_attn = false is no known Falcon",
                    config.where());
  }
  const auto norms = config.optional_count({"num_ln_in_parallel_attn"});
  layout.two_norms = layout.grouped && norms.value_or(2) == 2;
  return layout;
}

void read_kv_heads(ModelSpec& spec, const ConfigReader& config, const FalconLayout& layout) {
  if (layout.grouped) {
    spec.kv_heads =
        config.kv_heads("num_kv_heads", spec.layer_count(), spec.query_heads, spec.query_heads);
    spec.kv_heads_key = {"num_kv_heads"};
    spec.loaders_read_kv_heads = true;
    return;
  }
  const bool multi_query = config.flag_or({"multi_query"}, true);
  spec.kv_heads = config.kv_heads("num_key_value_heads", spec.layer_count(), spec.query_heads,
                                  multi_query ? 1 : spec.query_heads);
  spec.multi_query_key = "multi_query";
}

BlockNames falcon_block(const FalconLayout& layout) {
  BlockNames block = kBloomBlock;
  if (layout.two_norms) {
    block.attention.norm = "ln_attn";
    block.mlp.norm = "ln_mlp";
  } else if (layout.parallel) {
    block.mlp.norm = {};
  }
  return block;
}

}  // namespace

ModelSpec describe_falcon(const ModelConfig& config) {
  const FalconLayout layout = read_layout(config);
  ModelSpec spec;
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads", "n_head"}, std::nullopt);
  read_layers(spec.layers, config, {"num_hidden_layers", "n_layer"});
  spec.intermediate_size =
      config.optional_count({"ffn_hidden_size"}).value_or(4 * spec.hidden_size);
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  read_kv_heads(spec, config, layout);
  if (config.flag_or({"alibi"}, false)) {
    spec.positions = PositionKind::kAlibi;
    spec.alibi.scaled = true;
  } else {
    read_rope(spec, config);
  }
  read_layer_norm(spec, config, {"layer_norm_epsilon"});
  spec.activation = config.activation_or({"activation"}, "gelu");
  spec.parallel_residual = layout.parallel;
  if (config.flag_or({"apply_residual_connection_post_layernorm"}, false)) {
    spec.not_computable = "apply_residual_connection_post_layernorm = true";
  }

  const bool bias = layout.biases;
  name_stack(spec, config, {"transformer.", "word_embeddings", "h.", "ln_f"}, falcon_block(layout),
             {bias, bias, bias, true});
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

// Baichuan and Baichuan 2: Llama's block with q‖k‖v in one tensor. The 7B has RoPE, the 13B ALiBi.

namespace {

// The published sizes. Loaders (vLLM, llama.cpp) tell the two models apart by their size.
constexpr std::int64_t kHiddenSizeOf7B = 4096, kHiddenSizeOf13B = 5120;

// Other sizes are told apart by the key that only the 7B's config class has: the 13B's has
// model_max_length.
bool has_rope(const ModelSpec& spec) {
  return spec.hidden_size == kHiddenSizeOf7B ||
         (spec.hidden_size != kHiddenSizeOf13B && spec.max_positions.has_value());
}

void read_baichuan_positions(ModelSpec& spec, const ModelConfig& config) {
  if (has_rope(spec)) {
    read_rope(spec, config);
    return;
  }
  const std::string frequencies = llama_layer_name(config, 0) + ".self_attn.rotary_emb.inv_freq";
  if (config.stores(frequencies)) {
    throw_bad_input(
        "{}: the checkpoint has {}, so RoPE, but the config has no max_position_embeddings, which "
        "means ALiBi; add that key",
        config.where(), frequencies);
  }
  spec.positions = PositionKind::kAlibi;
  spec.max_positions = config.optional_count({"model_max_length"}).value_or(4096);
}

// Baichuan 2 divides each row of the output projection by its norm. Its config class alone has
// z_loss_weight; both sizes have a vocabulary of their own.
bool normalises_head(const ModelSpec& spec, const ConfigReader& config) {
  constexpr std::int64_t kVocabularyOfBaichuan2 = 125696;
  return config.find("z_loss_weight") != nullptr || spec.vocab_size == kVocabularyOfBaichuan2;
}

}  // namespace

ModelSpec describe_baichuan(const ModelConfig& config) {
  ModelSpec spec;
  read_llama_sizes(spec, config);
  spec.loaders_read_kv_heads = false;
  read_baichuan_positions(spec, config);
  read_rms_block(spec, config);
  BlockNames block = kLlamaBlock;
  block.packing = Packing::kQueryKeyValue;
  block.attention.qkv = "self_attn.W_pack";
  name_llama_tensors(spec, config, {}, /*tied_by_default=*/false, block);
  spec.lm_head_normalised = normalises_head(spec, config);
  return spec;
}

}  // namespace regroup

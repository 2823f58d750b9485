// Decoders with joined projections or kv heads that differ by layer.
#include <algorithm>
#include <limits>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

// InternLM (Llama with biases in attention) and InternLM2 (a fused projection per group, and other
// names).

namespace {

ModelSpec describe_internlm_common(const ModelConfig& config) {
  ModelSpec spec;
  read_llama_sizes(spec, config);
  spec.max_positions = spec.max_positions.value_or(2048);
  read_rms_block(spec, config);
  return spec;
}

// InternLM has its own key, "rotary". Without it the type is "dynamic", which has an effect only
// beyond max_position_embeddings.
void read_rotary(ModelSpec& spec, const ConfigReader& config) {
  const ConfigReader rotary = config.object("rotary");
  const std::string type = rotary.text_or({"type"}, "dynamic");
  if (type != "origin" && type != "dynamic") {
    throw_bad_input("{}: rotary.type is {}, origin or dynamic is needed", config.where(),
                    printable(type));
  }
  if (config.find("rope_scaling") != nullptr) {
    spec.not_computable = "rope_scaling, which this architecture's own code ignores";
  }
  Json rope = {{"rope_theta", rotary.number_or({"base"}, 10000.0)}};
  if (type == "dynamic") {
    rope["rope_scaling"] = {{"type", type}, {"factor", rotary.number_or({"scaling_factor"}, 1.0)}};
  }
  read_rope(spec, ConfigReader(rope, config.where()));
}

constexpr BlockNames kInternlm2Block{
    Packing::kPerGroup,
    {"attention_norm", "attention.wqkv", "attention.wo"},
    {"ffn_norm", "feed_forward.w1", "feed_forward.w3", "feed_forward.w2"}};

}  // namespace

ModelSpec describe_internlm(const ModelConfig& config) {
  ModelSpec spec = describe_internlm_common(config);
  spec.loaders_read_kv_heads = false;
  read_rotary(spec, config);
  const bool bias = config.flag_or({"bias"}, true);
  name_llama_tensors(spec, config, {.qkv = bias, .o = bias});
  return spec;
}

ModelSpec describe_internlm2(const ModelConfig& config) {
  ModelSpec spec = describe_internlm_common(config);
  read_rope(spec, config);
  const bool bias = config.flag_or({"bias"}, true);
  name_stack(spec, config, {"model.", "tok_embeddings", "layers.", "norm"}, kInternlm2Block,
             {.qkv = bias, .o = bias});
  name_output(spec, config, "output.weight", /*tied=*/false);
  return spec;
}

// Persimmon: GPT-NeoX's fused [H, 3, d] in a sequential block, with LayerNorm of queries and keys.

constexpr BlockNames kPersimmonBlock{
    Packing::kPerGroup,
    {"input_layernorm", "self_attn.query_key_value", "self_attn.dense"},
    {"post_attention_layernorm", {}, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}};

ModelSpec describe_persimmon(const ModelConfig& config) {
  ModelSpec spec;
  read_stack_sizes(spec, config);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  read_rope(spec, config, {.partial = 0.5});
  read_layer_norm(spec, config, {"layer_norm_eps"});
  spec.activation = config.activation_or({"hidden_act"}, "relu2");
  name_stack(spec, config, {"model.", "embed_tokens", "layers.", "final_layernorm"},
             kPersimmonBlock, kAllBiases);
  if (config.flag_or({"qk_layernorm"}, true)) {
    add_qk_norms(spec, config, QkNorm::kSharedAcrossHeads, "layernorm", /*bias=*/true);
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/false);
  return spec;
}

// DeciLM: Llama's tensors. The kv heads, the MLP's width and the parts present differ between
// layers. Nemotron-NAS describes each layer in block_configs; DeciLM-7B only lists the kv heads.

namespace {

constexpr std::string_view kBlocks = "block_configs";

// The contents of one of the two parts of a block.
enum class BlockPart { kWhole, kNone, kLinear };

BlockPart part_of(const ConfigReader& part) {
  if (part.flag_or({"no_op"}, false)) {
    return BlockPart::kNone;
  }
  return part.flag_or({"replace_with_linear"}, false) ? BlockPart::kLinear : BlockPart::kWhole;
}

// The formula of the public modeling code: int(2 · ffn_mult · D / 3), rounded up to a multiple of
// 256.
std::int64_t width_of_mlp(const ConfigReader& mlp, std::int64_t hidden_size) {
  constexpr std::int64_t kMultiple = 256;
  const double factor = mlp.number_or({"ffn_mult"}, 0.0);
  const double width = 2 * factor * static_cast<double>(hidden_size) / 3;
  if (!(width >= 1.0 && width < std::numeric_limits<std::int32_t>::max())) {
    throw_bad_input("{}: ffn_mult is {}, which makes no MLP for hidden size {}", mlp.where(),
                    factor, hidden_size);
  }
  return (static_cast<std::int64_t>(width) + kMultiple - 1) / kMultiple * kMultiple;
}

std::int64_t kv_heads_of_block(const ConfigReader& attention, std::int64_t query_heads) {
  const std::int64_t in_group = attention.count({"n_heads_in_group"});
  if (query_heads % in_group != 0) {
    throw_bad_input("{}: n_heads_in_group is {}, a divisor of the {} query heads is needed",
                    attention.where(), in_group, query_heads);
  }
  return query_heads / in_group;
}

void set_not_computable(ModelSpec& spec, const std::string& reason) {
  if (spec.not_computable.empty()) {
    spec.not_computable = reason;
  }
}

void read_attention(ModelSpec& spec, std::size_t layer, const ConfigReader& attention) {
  const BlockPart part = part_of(attention);
  if (part != BlockPart::kWhole) {
    spec.layers[layer].attention = {};
    spec.layers[layer].attention_norm = {};
    if (part == BlockPart::kLinear) {
      set_not_computable(spec, fmt::format("a linear map for attention in layer {}", layer));
    }
    return;
  }
  spec.kv_heads[layer] = kv_heads_of_block(attention, spec.query_heads);
  for (const char* key : {"window_length", "sparsify"}) {
    if (attention.find(key) != nullptr) {
      set_not_computable(spec, fmt::format("{} in layer {}", key, layer));
    }
  }
}

void read_mlp(ModelSpec& spec, std::size_t layer, const ConfigReader& mlp) {
  LayerTensors& tensors = spec.layers[layer];
  const BlockPart part = part_of(mlp);
  if (part == BlockPart::kWhole) {
    tensors.intermediate_size = width_of_mlp(mlp, spec.hidden_size);
    spec.intermediate_size = std::max(spec.intermediate_size, tensors.intermediate_size);
    return;
  }
  tensors.gate = tensors.up = tensors.down = {};
  tensors.mlp_norm = {};
  if (part == BlockPart::kLinear) {
    set_not_computable(spec, fmt::format("a linear map for the MLP in layer {}", layer));
  }
}

// Removes the parts that a layer's block config lacks.
void read_blocks(ModelSpec& spec, const ConfigReader& config) {
  const Json* blocks = config.find(kBlocks);
  if (blocks == nullptr || !blocks->is_array() || blocks->size() != spec.layers.size()) {
    throw_bad_input("{}: {} is no list of {} layers", config.where(), kBlocks, spec.layers.size());
  }
  spec.kv_heads.assign(spec.layers.size(), 0);
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    const std::string where = fmt::format("{}: {}[{}]", config.where(), kBlocks, i);
    if (!(*blocks)[i].is_object()) {
      throw_bad_input("{} is no object", where);
    }
    const ConfigReader block((*blocks)[i], where);
    read_attention(spec, i, block.object("attention"));
    read_mlp(spec, i, block.object("ffn"));
  }
  spec.layer_configs_key = {std::string(kBlocks)};
  spec.heads_per_group_key = {"attention", "n_heads_in_group"};
}

// Everything except the sizes that differ between layers.
ModelSpec describe_frame(const ModelConfig& config) {
  ModelSpec spec;
  read_llama_frame(spec, config);
  read_rope(spec, config);
  read_rms_block(spec, config);
  name_llama_tensors(spec, config, llama_biases(config));
  spec.loaders_read_kv_heads = true;
  spec.loaders_let_layers_differ = true;
  return spec;
}

}  // namespace

ModelSpec describe_nemotron_nas(const ModelConfig& config) {
  ModelSpec spec = describe_frame(config);
  read_blocks(spec, config);
  if (std::ranges::all_of(spec.kv_heads, [](std::int64_t heads) { return heads == 0; })) {
    throw_bad_input("{}: {} leaves no layer with attention", config.where(), kBlocks);
  }
  return spec;
}

ModelSpec describe_deci(const ModelConfig& config) {
  constexpr std::string_view kPerLayer = "num_key_value_heads_per_layer";
  if (config.find(kBlocks) != nullptr) {
    return describe_nemotron_nas(config);
  }
  ModelSpec spec = describe_frame(config);
  spec.intermediate_size = config.count({"intermediate_size"});
  const Json* listed = config.find(kPerLayer);
  const std::string_view key = listed != nullptr ? kPerLayer : "num_key_value_heads";
  spec.kv_heads = config.kv_heads(key, spec.layer_count(), spec.query_heads, spec.query_heads);
  spec.kv_heads_key = {std::string(key)};
  spec.kv_heads_always_listed = listed != nullptr;
  return spec;
}

// ChatGLM2, ChatGLM3 and GLM-4 in the form of their own code (grouped heads, fused projections,
// RoPE on half of each head), and GLM, the same in transformers. ChatGLM-6B is another model.

namespace {

constexpr BlockNames kChatglm2Block{
    Packing::kQueryKeyValue,
    {"input_layernorm", "self_attention.query_key_value", "self_attention.dense"},
    {"post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}};

void read_chatglm2_sizes(ModelSpec& spec, const ModelConfig& config) {
  if (!config.flag_or({"multi_query_attention"}, false)) {
    throw_bad_input(
        "{}: multi_query_attention is not true; ChatGLM models without grouped heads are not "
        "supported: set it to true with multi_query_group_num = num_attention_heads if the weights "
        "are in that form",
        config.where());
  }
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, config.optional_count({"kv_channels"}));
  read_layers(spec.layers, config, {"num_layers"});
  spec.intermediate_size = config.count({"ffn_hidden_size"});
  spec.vocab_size = config.count({"padded_vocab_size"});
  spec.max_positions = config.optional_count({"seq_length"});
  spec.kv_heads_key = {"multi_query_group_num"};
  spec.kv_heads = config.kv_heads("multi_query_group_num", spec.layer_count(), spec.query_heads, 1);
  spec.loaders_read_kv_heads = true;  // its own code does
}

// Releases of the family read rope_ratio as a factor of the base or as a divisor of positions.
std::string unsupported_chatglm_setting(const ConfigReader& config) {
  if (config.number_or({"rope_ratio"}, 1.0) != 1.0) {
    return "rope_ratio, which releases of this family read differently";
  }
  const std::string flag = unusual_flag(config, {{"rmsnorm", true}, {"post_layer_norm", true}});
  return flag.empty() && config.find("pre_seq_len") != nullptr ? "pre_seq_len" : flag;
}

}  // namespace

ModelSpec describe_glm(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 2, .head_dim = 128},
                                       /*default_epsilon=*/1.5625e-7, {.partial = 0.5});
  spec.rope.interleaved = true;
  BlockNames block = kLlamaBlock;
  block.mlp.gate = block.mlp.up = "mlp.gate_up_proj";
  name_llama_tensors(spec, config, {.qkv = config.flag_or({"attention_bias"}, true)},
                     /*tied_by_default=*/false, block);
  return spec;
}

ModelSpec describe_chatglm(const ModelConfig& config) {
  if (config.flag_or({"position_encoding_2d"}, false) ||
      config.find("inner_hidden_size") != nullptr) {
    throw_bad_input(
        "{}: ChatGLM-6B is not supported: its positions have two dimensions; ChatGLM2, ChatGLM3 "
        "and GLM-4 are",
        config.where());
  }
  constexpr double kTheta = 10000.0;
  ModelSpec spec;
  read_chatglm2_sizes(spec, config);
  spec.positions = PositionKind::kRope;
  spec.rope.theta = kTheta;
  spec.rope.rotary_dim = spec.head_dim / 2;
  spec.rope.interleaved = true;
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"layernorm_epsilon"}, 1e-5);
  spec.activation = Activation::kSilu;
  spec.residual_after_norm = config.flag_or({"apply_residual_connection_post_layernorm"}, false);
  spec.not_computable = unsupported_chatglm_setting(config);
  const bool bias = config.flag_or({"add_bias_linear"}, false);
  const bool qkv_bias = bias || config.flag_or({"add_qkv_bias"}, false);
  name_blocks(spec.layers, "transformer.encoder.layers.", kChatglm2Block,
              {.qkv = qkv_bias, .o = bias, .mlp = bias});
  spec.token_embedding = "transformer.embedding.word_embeddings.weight";
  spec.final_norm = norm_at("transformer.encoder.final_layernorm", false);
  name_output(spec, config, "transformer.output_layer.weight", /*tied=*/false);
  return spec;
}

}  // namespace regroup

#include <algorithm>
#include <vector>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

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

// GPT-2: q‖k‖v fused in a Conv1D, which stores its weight input-major.

namespace {

LinearTensors conv1d_at(const std::string& name) {
  return {name + ".weight", name + ".bias", true};
}

LayerTensors gpt2_layer(const std::string& name) {
  LayerTensors layer;
  const LinearTensors fused = conv1d_at(name + ".attn.c_attn");
  layer.attention_norm = norm_at(name + ".ln_1", true);
  layer.attention = {Packing::kQueryKeyValue,          fused, fused, fused,
                     conv1d_at(name + ".attn.c_proj"), {},    {}};
  layer.mlp_norm = norm_at(name + ".ln_2", true);
  layer.up = conv1d_at(name + ".mlp.c_fc");
  layer.down = conv1d_at(name + ".mlp.c_proj");
  return layer;
}

// Variations that change the computation. GPT-2's own checkpoints use none of them.
std::string unsupported_variation(const ConfigReader& config) {
  if (!config.flag_or({"scale_attn_weights"}, true)) {
    return "scale_attn_weights = false";
  }
  if (config.flag_or({"scale_attn_by_inverse_layer_idx"}, false)) {
    return "scale_attn_by_inverse_layer_idx = true";
  }
  if (config.flag_or({"add_cross_attention"}, false)) {
    return "add_cross_attention = true";
  }
  return "";
}

}  // namespace

ModelSpec describe_gpt2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  const std::string prefix = read_gpt_frame(spec, config, checkpoint, "gelu_new");
  use_learned_positions(spec, config, prefix);
  spec.not_computable = unsupported_variation(config);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = gpt2_layer(prefix + "h." + std::to_string(i));
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

// GPT-Neo: GPT-2's block with separate projections, scores that are not scaled, and a window in
// every other layer.

namespace {

// attention_types is a list of patterns, each with the number of its repetitions:
// [[["global", "local"], 12]]. Refusing too many layers bounds the repetitions.
std::vector<bool> local_layers(const ConfigReader& config, std::size_t layers) {
  static const Json kUsual = Json::parse(R"([[["global", "local"], 12]])");
  const Json* found = config.find("attention_types");
  std::vector<bool> local;
  const auto add = [&](const Json& entry) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_array() || entry[0].empty() ||
        !entry[1].is_number_unsigned() || entry[1].get<std::uint64_t>() > layers) {
      return false;
    }
    for (std::uint64_t i = 0; i < entry[1].get<std::uint64_t>(); ++i) {
      for (const Json& kind : entry[0]) {
        if ((kind != "global" && kind != "local") || local.size() == layers) {
          return false;
        }
        local.push_back(kind == "local");
      }
    }
    return true;
  };
  const Json& types = found == nullptr ? kUsual : *found;
  if (!types.is_array() || !std::all_of(types.begin(), types.end(), add) ||
      local.size() != layers) {
    throw_bad_input(
        "{}: attention_types must list patterns of global and local for {} layers, such as "
        "[[[\"global\", \"local\"], {}]]",
        config.where(), layers, layers / 2);
  }
  return local;
}

LayerTensors gpt_neo_layer(const std::string& name) {
  const std::string attention = name + ".attn.attention.";
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".ln_1", true);
  layer.attention.q = linear_at(attention + "q_proj", false);
  layer.attention.k = linear_at(attention + "k_proj", false);
  layer.attention.v = linear_at(attention + "v_proj", false);
  layer.attention.o = linear_at(attention + "out_proj", true);
  layer.mlp_norm = norm_at(name + ".ln_2", true);
  layer.up = linear_at(name + ".mlp.c_fc", true);
  layer.down = linear_at(name + ".mlp.c_proj", true);
  return layer;
}

void read_gpt_neo_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_heads", "num_attention_heads"}, std::nullopt);
  read_stack_sizes(spec, config, {"num_layers", "num_hidden_layers"}, checkpoint);
  spec.intermediate_size =
      config.optional_count({"intermediate_size"}).value_or(4 * spec.hidden_size);
}

}  // namespace

ModelSpec describe_gpt_neo(const ConfigReader& config, const Checkpoint& checkpoint) {
  constexpr std::int64_t kWindowUnlessGiven = 256;
  ModelSpec spec;
  read_gpt_neo_sizes(spec, config, checkpoint);
  spec.positions = PositionKind::kLearned;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-5);
  spec.activation =
      activation_from_name(config.text_or({"activation_function"}, "gelu_new"), config.where());
  spec.attention_scale = 1.0;
  const std::string prefix = find_prefix(checkpoint, {"transformer.", ""}, "wte.weight");
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = gpt_neo_layer(prefix + "h." + std::to_string(i));
  }
  set_windows(spec, local_layers(config, spec.layers.size()),
              config.optional_count({"window_size"}).value_or(kWindowUnlessGiven));
  spec.token_embedding = prefix + "wte.weight";
  spec.position_embedding = prefix + "wpe.weight";
  spec.final_norm = norm_at(prefix + "ln_f", true);
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

// GPT-NeoX (Pythia): fused [H, 3, d], partial RoPE, attention and MLP in parallel.

namespace {

LayerTensors neox_layer(const std::string& name, bool bias) {
  const LinearTensors fused = linear_at(name + ".attention.query_key_value", bias);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".input_layernorm", true);
  layer.attention = {
      Packing::kPerGroup, fused, fused, fused, linear_at(name + ".attention.dense", bias), {}, {}};
  layer.mlp_norm = norm_at(name + ".post_attention_layernorm", true);
  layer.up = linear_at(name + ".mlp.dense_h_to_4h", true);
  layer.down = linear_at(name + ".mlp.dense_4h_to_h", true);
  return layer;
}

}  // namespace

ModelSpec describe_gpt_neox(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, std::nullopt);
  const std::int64_t layers = read_layer_count(config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);
  read_rope(spec, config, {.partial = 0.25});
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-5);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "gelu"), config.where());
  spec.parallel_residual = config.flag_or({"use_parallel_residual"}, true);

  const bool bias = config.flag_or({"attention_bias"}, true);
  const std::string prefix = find_prefix(checkpoint, {"gpt_neox.", ""}, "embed_in.weight");
  for (std::int64_t i = 0; i < layers; ++i) {
    spec.layers.push_back(neox_layer(prefix + "layers." + std::to_string(i), bias));
  }
  spec.token_embedding = prefix + "embed_in.weight";
  spec.final_norm = norm_at(prefix + "final_layer_norm", true);
  name_output(spec, config,
              find_prefix(checkpoint, {"embed_out", "lm_head"}, ".weight") + ".weight",
              /*tied=*/false);
  return spec;
}

// GPT-J and CodeGen: GPT-2's config, interleaved RoPE, attention and MLP in parallel. GPT-J's
// projections are separate, CodeGen's are one tensor in the parts of four devices.

namespace {

LayerTensors gptj_layer(const std::string& name, bool fused) {
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".ln_1", true);  // the MLP reads it, too
  layer.attention.packing = Packing::kSeparate;
  layer.attention.q = linear_at(name + ".attn.q_proj", false);
  layer.attention.k = linear_at(name + ".attn.k_proj", false);
  layer.attention.v = linear_at(name + ".attn.v_proj", false);
  if (fused) {
    layer.attention.packing = Packing::kPartitioned;
    layer.attention.q = layer.attention.k = layer.attention.v =
        linear_at(name + ".attn.qkv_proj", false);
  }
  layer.attention.o = linear_at(name + ".attn.out_proj", false);
  layer.up = linear_at(name + ".mlp.fc_in", true);
  layer.down = linear_at(name + ".mlp.fc_out", true);
  return layer;
}

ModelSpec describe_gptj_like(const ConfigReader& config, const Checkpoint& checkpoint, bool fused) {
  ModelSpec spec;
  const std::string prefix = read_gpt_frame(spec, config, checkpoint, "gelu_new");
  spec.parallel_residual = true;
  spec.positions = PositionKind::kRope;
  spec.rope.interleaved = true;
  // The default is 64. With null, transformers fails.
  spec.rope.rotary_dim = config.mentions("rotary_dim") ? config.count({"rotary_dim"}) : 64;
  if (spec.rope.rotary_dim > spec.head_dim || spec.rope.rotary_dim % 2 != 0) {
    throw_bad_input("{}: rotary_dim is {}, an even number up to {} is needed", config.where(),
                    spec.rope.rotary_dim, spec.head_dim);
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = gptj_layer(prefix + "h." + std::to_string(i), fused);
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/false);
  spec.lm_head_bias = "lm_head.bias";
  return spec;
}

}  // namespace

ModelSpec describe_gptj(const ConfigReader& config, const Checkpoint& checkpoint) {
  return describe_gptj_like(config, checkpoint, false);
}

ModelSpec describe_codegen(const ConfigReader& config, const Checkpoint& checkpoint) {
  constexpr std::int64_t kParts = 4;
  ModelSpec spec = describe_gptj_like(config, checkpoint, true);
  if (spec.query_heads % kParts != 0) {
    throw_bad_input("{}: n_head is {}, a multiple of {} is needed", config.where(),
                    spec.query_heads, kParts);
  }
  return spec;
}

// GPTBigCode (Starcoder): GPT-2's graph with plain linear maps; one kv head, or [H, 3, d].

namespace {

LayerTensors bigcode_layer(const std::string& name) {
  const LinearTensors fused = linear_at(name + ".attn.c_attn", true);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".ln_1", true);
  // q‖k‖v of one kv head is the per-group packing with one group.
  layer.attention = {
      Packing::kPerGroup, fused, fused, fused, linear_at(name + ".attn.c_proj", true), {}, {}};
  layer.mlp_norm = norm_at(name + ".ln_2", true);
  layer.up = linear_at(name + ".mlp.c_fc", true);
  layer.down = linear_at(name + ".mlp.c_proj", true);
  return layer;
}

}  // namespace

ModelSpec describe_gpt_bigcode(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  const std::string prefix = read_gpt_frame(spec, config, checkpoint, "gelu_pytorch_tanh");
  use_learned_positions(spec, config, prefix);
  const bool multi_query = config.flag_or({"multi_query"}, true);
  spec.kv_heads = config.kv_heads("num_key_value_heads", spec.layer_count(), spec.query_heads,
                                  multi_query ? 1 : spec.query_heads);
  spec.multi_query_key = "multi_query";
  if (!config.flag_or({"scale_attn_weights"}, true)) {
    spec.attention_scale = 1.0;
  }
  if (config.flag_or({"add_cross_attention"}, false)) {
    spec.not_computable = "add_cross_attention = true";
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = bigcode_layer(prefix + "h." + std::to_string(i));
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup

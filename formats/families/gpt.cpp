#include <algorithm>
#include <vector>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

namespace {

// What GPT-2, GPTBigCode and GPT-J share: config keys and tensors. Returns the prefix of all tensor
// names, "transformer." or "".
std::string read_gpt_frame(ModelSpec& spec, const ModelConfig& config,
                           const std::string& default_activation, const BlockNames& block,
                           const BlockBiases& biases = kAllBiases) {
  read_stack_sizes(spec, config, {"n_embd", "hidden_size"}, {"n_head", "num_attention_heads"},
                   {"n_layer", "num_hidden_layers"});
  spec.intermediate_size = config.optional_count({"n_inner"}).value_or(4 * spec.hidden_size);
  spec.max_positions = config.optional_count({"n_positions", "max_position_embeddings"});
  read_layer_norm(spec, config, {"layer_norm_epsilon"});
  spec.activation = config.activation_or({"activation_function"}, default_activation);
  return name_stack(spec, config, {"transformer.", "wte", "h.", "ln_f"}, block, biases);
}

void use_learned_positions(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  spec.positions = PositionKind::kLearned;
  spec.max_positions = config.count({"n_positions", "max_position_embeddings"});
  spec.position_embedding = prefix + "wpe.weight";
}

BlockNames gpt2_block(Packing packing) {
  return {packing, {"ln_1", "attn.c_attn", "attn.c_proj"}, {"ln_2", {}, "mlp.c_fc", "mlp.c_proj"}};
}

// GPT-Neo's attention_types is a list of patterns, each with the number of its repetitions:
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
  if (!types.is_array() || !std::ranges::all_of(types, add) || local.size() != layers) {
    throw_bad_input(
        "{}: attention_types must list patterns of global and local for {} layers, such as "
        "[[[\"global\", \"local\"], {}]]",
        config.where(), layers, layers / 2);
  }
  return local;
}

constexpr BlockNames kGptNeoBlock{Packing::kSeparate,
                                  {"ln_1", "attn.attention.*_proj", "attn.attention.out_proj"},
                                  {"ln_2", {}, "mlp.c_fc", "mlp.c_proj"}};

// The MLP of GPT-J and CodeGen reads the norm of attention, too.
BlockNames gptj_block(bool fused) {
  return {fused ? Packing::kPartitioned : Packing::kSeparate,
          {"ln_1", fused ? "attn.qkv_proj" : "attn.*_proj", "attn.out_proj"},
          {{}, {}, "mlp.fc_in", "mlp.fc_out"}};
}

ModelSpec describe_gptj_like(const ModelConfig& config, bool fused) {
  ModelSpec spec;
  read_gpt_frame(spec, config, "gelu_new", gptj_block(fused), {.mlp = true, .norm = true});
  spec.parallel_residual = true;
  spec.positions = PositionKind::kRope;
  spec.rope.interleaved = true;
  // The default is 64. With null, transformers fails.
  spec.rope.rotary_dim = config.mentions("rotary_dim") ? config.count({"rotary_dim"}) : 64;
  if (spec.rope.rotary_dim > spec.head_dim || spec.rope.rotary_dim % 2 != 0) {
    throw_bad_input("{}: rotary_dim is {}, an even number up to {} is needed", config.where(),
                    spec.rope.rotary_dim, spec.head_dim);
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/false);
  spec.lm_head_bias = "lm_head.bias";
  return spec;
}

}  // namespace

// GPT-2: q‖k‖v fused in a Conv1D, which stores its weight input-major.

ModelSpec describe_gpt2(const ModelConfig& config) {
  ModelSpec spec;
  const std::string prefix =
      read_gpt_frame(spec, config, "gelu_new", gpt2_block(Packing::kQueryKeyValue));
  use_learned_positions(spec, config, prefix);
  // Variations that change the computation. GPT-2's own checkpoints use none of them.
  spec.not_computable = unusual_flag(config, {{"scale_attn_weights", true},
                                              {"scale_attn_by_inverse_layer_idx", false},
                                              {"add_cross_attention", false}});
  for (LayerTensors& layer : spec.layers) {
    AttentionLayout& attention = layer.attention;
    for (LinearTensors* conv1d :
         {&attention.q, &attention.k, &attention.v, &attention.o, &layer.up, &layer.down}) {
      conv1d->input_major = true;
    }
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

// GPT-Neo: GPT-2's block with separate projections, scores that are not scaled, and a window in
// every other layer.

ModelSpec describe_gpt_neo(const ModelConfig& config) {
  constexpr std::int64_t kWindowUnlessGiven = 256;
  ModelSpec spec;
  read_stack_sizes(spec, config, {"hidden_size"}, {"num_heads", "num_attention_heads"},
                   {"num_layers", "num_hidden_layers"});
  spec.intermediate_size =
      config.optional_count({"intermediate_size"}).value_or(4 * spec.hidden_size);
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.positions = PositionKind::kLearned;
  read_layer_norm(spec, config, {"layer_norm_epsilon"});
  spec.activation = config.activation_or({"activation_function"}, "gelu_new");
  spec.attention_scale = 1.0;
  const std::string prefix = name_stack(spec, config, {"transformer.", "wte", "h.", "ln_f"},
                                        kGptNeoBlock, {.o = true, .mlp = true, .norm = true});
  set_windows(spec, local_layers(config, spec.layers.size()),
              config.optional_count({"window_size"}).value_or(kWindowUnlessGiven));
  spec.position_embedding = prefix + "wpe.weight";
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

// GPT-NeoX (Pythia): fused [H, 3, d], partial RoPE, attention and MLP in parallel.

constexpr BlockNames kNeoxBlock{
    Packing::kPerGroup,
    {"input_layernorm", "attention.query_key_value", "attention.dense"},
    {"post_attention_layernorm", {}, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}};

ModelSpec describe_gpt_neox(const ModelConfig& config) {
  ModelSpec spec;
  read_stack_sizes(spec, config);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  read_rope(spec, config, {.partial = 0.25, .keys = {"rotary_emb_base", "rotary_pct"}});
  read_layer_norm(spec, config, {"layer_norm_eps"});
  spec.activation = config.activation_or({"hidden_act"}, "gelu");
  spec.parallel_residual = config.flag_or({"use_parallel_residual"}, true);

  const bool bias = config.flag_or({"attention_bias"}, true);
  name_stack(spec, config, {"gpt_neox.", "embed_in", "layers.", "final_layer_norm"}, kNeoxBlock,
             {.qkv = bias, .o = bias, .mlp = true, .norm = true});
  name_output(spec, config, find_prefix(config, {"embed_out", "lm_head"}, ".weight") + ".weight",
              /*tied=*/false);
  return spec;
}

// GPT-J and CodeGen: GPT-2's config, interleaved RoPE, attention and MLP in parallel. GPT-J's
// projections are separate, CodeGen's are one tensor in the parts of four devices.

ModelSpec describe_gptj(const ModelConfig& config) { return describe_gptj_like(config, false); }

ModelSpec describe_codegen(const ModelConfig& config) {
  constexpr std::int64_t kParts = 4;
  ModelSpec spec = describe_gptj_like(config, true);
  if (spec.query_heads % kParts != 0) {
    throw_bad_input("{}: n_head is {}, a multiple of {} is needed", config.where(),
                    spec.query_heads, kParts);
  }
  return spec;
}

// GPTBigCode (Starcoder): GPT-2's graph with plain linear maps; one kv head, or [H, 3, d].

ModelSpec describe_gpt_bigcode(const ModelConfig& config) {
  ModelSpec spec;
  // q‖k‖v of one kv head is the per-group packing with one group.
  const std::string prefix =
      read_gpt_frame(spec, config, "gelu_pytorch_tanh", gpt2_block(Packing::kPerGroup));
  use_learned_positions(spec, config, prefix);
  const bool multi_query = config.flag_or({"multi_query"}, true);
  spec.kv_heads = config.kv_heads("num_key_value_heads", spec.layer_count(), spec.query_heads,
                                  multi_query ? 1 : spec.query_heads);
  spec.multi_query_key = "multi_query";
  if (!config.flag_or({"scale_attn_weights"}, true)) {
    spec.attention_scale = 1.0;
  }
  spec.not_computable = unusual_flag(config, {{"add_cross_attention", false}});
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup

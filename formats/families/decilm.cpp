// DeciLM: Llama's tensors. The kv heads, the MLP's width and the parts present differ between
// layers. Nemotron-NAS describes each layer in block_configs; DeciLM-7B only lists the kv heads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
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
  if (part == BlockPart::kWhole) {
    spec.kv_heads[layer] = kv_heads_of_block(attention, spec.query_heads);
  } else {
    spec.layers[layer].attention = {};
    spec.layers[layer].attention_norm = {};
  }
  if (part == BlockPart::kLinear) {
    set_not_computable(spec, fmt::format("a linear map for attention in layer {}", layer));
  }
  for (const char* key : {"window_length", "sparsify"}) {
    if (part == BlockPart::kWhole && attention.find(key) != nullptr) {
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
  } else {
    tensors.gate = tensors.up = tensors.down = {};
    tensors.mlp_norm = {};
  }
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
ModelSpec describe_frame(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_llama_frame(spec, config, checkpoint);
  read_rope(spec, config);
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-6);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());
  const bool attention_bias = config.flag_or({"attention_bias"}, false);
  name_llama_tensors(spec, config, checkpoint,
                     {attention_bias, attention_bias, config.flag_or({"mlp_bias"}, false), false});
  spec.loaders_read_kv_heads = true;
  spec.loaders_let_layers_differ = true;
  return spec;
}

}  // namespace

ModelSpec describe_nemotron_nas(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_frame(config, checkpoint);
  read_blocks(spec, config);
  if (std::all_of(spec.kv_heads.begin(), spec.kv_heads.end(),
                  [](std::int64_t heads) { return heads == 0; })) {
    throw_bad_input("{}: {} leaves no layer with attention", config.where(), kBlocks);
  }
  return spec;
}

ModelSpec describe_deci(const ConfigReader& config, const Checkpoint& checkpoint) {
  constexpr std::string_view kPerLayer = "num_key_value_heads_per_layer";
  if (config.find(kBlocks) != nullptr) {
    return describe_nemotron_nas(config, checkpoint);
  }
  ModelSpec spec = describe_frame(config, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
  const Json* listed = config.find(kPerLayer);
  const std::string_view key = listed != nullptr ? kPerLayer : "num_key_value_heads";
  spec.kv_heads = config.kv_heads(key, spec.layer_count(), spec.query_heads, spec.query_heads);
  spec.kv_heads_key = {std::string(key)};
  spec.kv_heads_always_listed = listed != nullptr;
  return spec;
}

}  // namespace regroup

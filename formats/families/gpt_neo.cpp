// GPT-Neo: GPT-2's block with separate projections, scores that are not scaled, and a window in
// every other layer.
#include <algorithm>
#include <vector>

#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/layer_windows.h"
#include "formats/families/families.h"

namespace regroup {
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

}  // namespace regroup

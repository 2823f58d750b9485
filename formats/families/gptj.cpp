// GPT-J: GPT-2's config, separate projections, interleaved RoPE, attention and MLP in parallel.
#include "formats/base/error.h"
#include "formats/families/decoder_sizes.h"
#include "formats/families/families.h"
#include "formats/families/gpt_layout.h"

namespace regroup {
namespace {

LayerTensors gptj_layer(const std::string& name) {
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".ln_1", true);  // the MLP reads it, too
  layer.attention.packing = Packing::kSeparate;
  layer.attention.q = linear_at(name + ".attn.q_proj", false);
  layer.attention.k = linear_at(name + ".attn.k_proj", false);
  layer.attention.v = linear_at(name + ".attn.v_proj", false);
  layer.attention.o = linear_at(name + ".attn.out_proj", false);
  layer.up = linear_at(name + ".mlp.fc_in", true);
  layer.down = linear_at(name + ".mlp.fc_out", true);
  return layer;
}

}  // namespace

ModelSpec describe_gptj(const ConfigReader& config, const Checkpoint& checkpoint) {
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
    spec.layers[i] = gptj_layer(prefix + "h." + std::to_string(i));
  }
  spec.lm_head = config.flag_or({"tie_word_embeddings"}, false) ? "" : "lm_head.weight";
  spec.lm_head_bias = "lm_head.bias";
  return spec;
}

}  // namespace regroup

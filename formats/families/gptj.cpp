// GPT-J and CodeGen: GPT-2's config, interleaved RoPE, attention and MLP in parallel. GPT-J's
// projections are separate, CodeGen's are one tensor in the parts of four devices.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"
#include "formats/families/gpt_layout.h"

namespace regroup {
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

}  // namespace regroup

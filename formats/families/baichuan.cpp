// Baichuan and Baichuan 2: Llama's block with q‖k‖v in one tensor. The 7B has RoPE, the 13B ALiBi.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

// The published sizes. Loaders (vLLM, llama.cpp) tell the two models apart by their size.
constexpr std::int64_t kHiddenSizeOf7B = 4096, kHiddenSizeOf13B = 5120;

// Other sizes are told apart by the key that only the 7B's config class has: the 13B's has
// model_max_length.
bool has_rope(const ModelSpec& spec) {
  return spec.hidden_size == kHiddenSizeOf7B ||
         (spec.hidden_size != kHiddenSizeOf13B && spec.max_positions.has_value());
}

void read_baichuan_positions(ModelSpec& spec, const ConfigReader& config,
                             const Checkpoint& checkpoint) {
  if (has_rope(spec)) {
    read_rope(spec, config);
    return;
  }
  const std::string frequencies =
      llama_layer_name(checkpoint, 0) + ".self_attn.rotary_emb.inv_freq";
  if (checkpoint.find(frequencies) != nullptr) {
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

ModelSpec describe_baichuan(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint);
  spec.loaders_read_kv_heads = false;
  read_baichuan_positions(spec, config, checkpoint);
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-6);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());
  name_llama_tensors(spec, config, checkpoint, {});
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    AttentionLayout& attention = spec.layers[static_cast<std::size_t>(i)].attention;
    attention.packing = Packing::kQueryKeyValue;
    attention.q = attention.k = attention.v =
        linear_at(llama_layer_name(checkpoint, i) + ".self_attn.W_pack", false);
  }
  spec.lm_head_normalised = normalises_head(spec, config);
  return spec;
}

}  // namespace regroup

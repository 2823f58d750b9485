// The stacks of BART and its relatives: an encoder and a decoder with separate projections.
#pragma once

#include <string>

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Sets sizes, kv heads and layers (without names) from BART's keys, and what all relatives share:
/// LayerNorm, the activation (`absent` if there is no key), the scale of embeddings (√D if
/// scale_embedding, `scaled` if there is no key), the first token of the decoder. Throws kBadInput
/// if encoder and decoder have different numbers of heads.
struct BartDefaults {
  std::string activation = "gelu";
  bool scaled = false;
  std::int64_t start_token = 2;
};
void read_bart_config(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                      const BartDefaults& defaults);

/// What stacks differ in.
struct BartNames {
  std::string prefix;            ///< of encoder and decoder: "model." or ""
  bool final_norms = false;      ///< "layer_norm" at the end of both
  bool embedding_norms = false;  ///< "layernorm_embedding"
  bool key_bias = true;
};
void name_bart_stacks(ModelSpec& spec, const BartNames& names);

/// "model.", or "" for models saved without their head.
std::string bart_prefix(const Checkpoint& checkpoint);

/// Names the shared embedding and what is tied to it. An untied output makes the model not
/// computable by regroup.
void name_shared_embedding(ModelSpec& spec, const ConfigReader& config, const std::string& prefix);

/// Names final_logits_bias, [1, V], if it is stored. transformers never trains it.
void name_logits_bias(ModelSpec& spec, const Checkpoint& checkpoint);

/// Keys of transformers 3, which later versions ignore: a config that differs from the family's
/// block describes another model.
struct OldBlockKeys {
  bool normalize_before, add_final_layer_norm, normalize_embedding;
};
void check_old_keys(ModelSpec& spec, const ConfigReader& config, const OldBlockKeys& fixed);

}  // namespace regroup

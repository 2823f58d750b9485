// Which part of a model each of its tensors belongs to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

enum class ModelPart {
  kEmbedding,
  kPositions,
  kEncoder,
  kAttention,
  kCross,
  kMlp,
  kNorms,
  kOutput
};

/// "embedding", "positions", "encoder" (the whole stack of an encoder-decoder), "attention",
/// "cross-attention", "mlp", "norms" or "output".
std::string_view name_of(ModelPart part);

/// Tensors' names, each once, as they stand in a spec or layer, which has to outlive this.
using ModelParts = std::vector<std::pair<std::string_view, ModelPart>>;

/// Every tensor the model computes with, and its part.
ModelParts parts_of(const ModelSpec& spec);

/// The same of one layer, whichever stack it stands in: kAttention, kCross, kMlp, kNorms, and
/// kPositions for T5's relative biases.
ModelParts parts_of_layer(const LayerTensors& layer);

/// The tensors that generating one token reads: all but embeddings that are only looked up, and the
/// encoder, which has run before.
std::vector<std::string> names_read_per_step(const ModelSpec& spec);

/// Their bytes.
std::uint64_t bytes_read_per_step(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup

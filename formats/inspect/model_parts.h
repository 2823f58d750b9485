// Assigns each tensor to a part of the model.
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
  kExperts,
  kNorms,
  kOutput
};

/// "embedding", "positions", "encoder" (the whole stack of an encoder-decoder), "attention",
/// "cross-attention", "mlp", "experts" (with their routers), "norms" or "output".
std::string_view name_of(ModelPart part);

/// Tensor names, each once. They are views of the spec or layer, which must outlive this.
using ModelParts = std::vector<std::pair<std::string_view, ModelPart>>;

/// Every tensor the model uses, and its part.
ModelParts parts_of(const ModelSpec& spec);

/// The same for one layer of any stack: kAttention, kCross, kMlp, kExperts, kNorms, and kPositions
/// for T5's relative biases.
ModelParts parts_of_layer(const LayerTensors& layer);

/// The tensors that generating one token reads: all except embeddings that are only looked up and
/// the encoder, which runs once before.
std::vector<std::string> names_read_per_step(const ModelSpec& spec);

/// The bytes of these tensors; of experts only the share that one token uses.
std::uint64_t bytes_read_per_step(const ModelSpec& spec, const Checkpoint& checkpoint);

/// The bytes of all experts, without their routers.
std::uint64_t bytes_of_experts(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup

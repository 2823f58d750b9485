// Names of tensors, and which of them is the output's projection.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// All tensor names in a ModelSpec, and what each tensor is a part of.

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

/// Calls `visit(name, part)` for each tensor name of a layer of any stack, also for empty ones.
/// Tensors that are several parts come several times. `Layer`: LayerTensors, constant or not.
template <typename Layer, typename Visit>
void for_each_tensor(Layer& layer, const Visit& visit) {
  const auto both = [&](auto& tensors, ModelPart part) {
    visit(tensors.weight, part);
    visit(tensors.bias, part);
  };
  const auto all = [&](auto& attention, ModelPart part) {
    for (auto* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) {
      both(*linear, part);
    }
    for (auto* norms : {&attention.q_norms, &attention.k_norms}) {
      for (auto& norm : *norms) {
        both(norm, part);
      }
    }
  };
  all(layer.attention, ModelPart::kAttention);
  all(layer.cross_attention, ModelPart::kCross);
  visit(layer.relative_bias, ModelPart::kPositions);
  for (auto* norm : layer.norms()) {
    both(*norm, ModelPart::kNorms);
  }
  for (auto* linear : {&layer.gate, &layer.up, &layer.down, &layer.shared_gate}) {
    both(*linear, ModelPart::kMlp);
  }
  visit(layer.experts.router, ModelPart::kExperts);
  for (auto* names : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) {
    for (auto& name : *names) {
      visit(name, ModelPart::kExperts);
    }
  }
}

/// The same for a whole model: what is before the layers, all layers (those of an encoder as
/// kEncoder), and what is after them. `Spec`: ModelSpec, constant or not.
template <typename Spec, typename Visit>
void for_each_tensor_of_model(Spec& spec, const Visit& visit) {
  const auto both = [&](auto& tensors, ModelPart part) {
    visit(tensors.weight, part);
    visit(tensors.bias, part);
  };
  visit(spec.token_embedding, ModelPart::kEmbedding);
  visit(spec.token_type_embedding, ModelPart::kEmbedding);
  visit(spec.position_embedding, ModelPart::kPositions);
  both(spec.project_in, ModelPart::kEmbedding);
  both(spec.embedding_norm, ModelPart::kNorms);
  both(spec.spectrum.first, ModelPart::kEncoder);
  both(spec.spectrum.second, ModelPart::kEncoder);
  visit(spec.encoder_position_embedding, ModelPart::kEncoder);
  both(spec.encoder_embedding_norm, ModelPart::kEncoder);
  for (auto& layer : spec.encoder_layers) {
    for_each_tensor(layer, [&](auto& name, ModelPart) { visit(name, ModelPart::kEncoder); });
  }
  both(spec.encoder_final_norm, ModelPart::kEncoder);
  for (auto& layer : spec.layers) {
    for_each_tensor(layer, visit);
  }
  both(spec.final_norm, ModelPart::kNorms);
  both(spec.project_out, ModelPart::kOutput);
  both(spec.head_transform, ModelPart::kOutput);
  both(spec.head_norm, ModelPart::kOutput);
  visit(spec.lm_head, ModelPart::kOutput);
  visit(spec.lm_head_bias, ModelPart::kOutput);
}

/// Replaces every tensor name by `rename(name)`. Empty names stay empty.
void rename_tensors(ModelSpec& spec, const std::function<std::string(const std::string&)>& rename);
void rename_tensors(LayerTensors& layer,
                    const std::function<std::string(const std::string&)>& rename);

// The output head, which maps the last hidden states to predictions. Checkpoints of base models
// lack it.

/// Decides, as transformers 5 does, which of the tensors that the config ties to the token
/// embedding are tied. One that is stored and differs is not: the output projection is then
/// spec.lm_head, and a model whose encoder or decoder has an embedding of its own is not
/// computable. If only another name of the embedding is stored, that is the embedding. Reads the
/// tensors if several are stored.
void settle_ties(ModelSpec& spec, const Checkpoint& checkpoint);

/// Whether it is a mask or a frequency that older loaders saved with the weights, by its name. No
/// loader reads them.
bool is_saved_buffer(std::string_view name);

/// Adds a sentence to spec.contradictions if the layers have tensors, or there are further layers,
/// that the model would be computed without.
void note_unread_tensors(ModelSpec& spec, const Checkpoint& checkpoint);

/// `spec` without its head's tensors.
ModelSpec without_head(ModelSpec spec);

/// The first head tensor that `spec` names, if `checkpoint` has none of them. Empty if it has any,
/// or if the head is tied to the token embedding.
std::string missing_head(const ModelSpec& spec, const Checkpoint& checkpoint);

/// The contradiction between a missing head and a config that names a class with one, which loaders
/// would fill with random numbers; empty for a base model's class. `missing`: see missing_head().
std::string text_of_lost_head(const Json& config, std::string_view missing);

}  // namespace regroup

// A model that predicts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "formats/model/model.h"
#include "formats/spec/model_spec.h"
#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"

namespace regroup {

// The output head of a model: final norm and output projection.
//
// Shapes: B windows of T tokens, D hidden size, V vocabulary.

/// The spec without its layers: embeddings, final norm and output projection.
ModelSpec without_layers(ModelSpec spec);

class OutputHead {
 public:
  /// Reads its tensors as `type`.
  OutputHead(const Model& source, c10::Device device, at::ScalarType type = at::kFloat);

  /// Output of the (decoder's) last layer, [B, T, D], see LayerWalk::hidden() -> inputs of the
  /// logits, [B·T, D] and [V, D].
  LmHeadInputs lm_head_inputs(const at::Tensor& hidden) const {
    return model_.lm_head_inputs(model_.finished(hidden));
  }

  /// The same -> [B, T, V].
  at::Tensor logits(const at::Tensor& hidden) const {
    return model_.logits(model_.finished(hidden));
  }

 private:
  Transformer model_;
};

// Which models and sequences can be computed.

/// Throws kBadInput for a model that Transformer cannot compute, with the reason.
void check_computable(const ModelSpec& spec);

/// Throws kUsage if the model's own code computes sequences of that length in another way.
void check_length(const ModelSpec& spec, std::int64_t length);

/// Throws kUsage for a model that cannot compute a part of a sequence, given the keys and values of
/// earlier parts.
void check_takes_parts(const ModelSpec& spec);

// Opens a model directory for computing and writes it back.

/// Opens a model and checks that all its tensors are present. Throws kBadInput for models that
/// cannot be computed.
Model open_computable_model(const std::filesystem::path& path);

/// Throws kBadInput for a model without an output head, which cannot predict tokens.
void check_predicts(const Model& model);

/// open_computable_model() and check_predicts().
Model open_predicting_model(const std::filesystem::path& path);

/// Reads the weights onto `device` and builds the transformer on them.
Transformer load_transformer(const Model& source, at::ScalarType type, at::Device device);

/// Writes a Hugging Face directory at `destination`, which appears only when it is complete:
/// weights in the source's names, order and dtypes with the values of `tensors`, `config_text`
/// as config.json, the source's other files, and a model card (see write_model_card()).
void save_model(const Model& source, std::span<const StateTensor> tensors,
                const std::string& config_text, const std::filesystem::path& destination);

/// Writes all files of a result but its weights: config.json, the source's other files, and a model
/// card.
void write_other_files(const Model& source, const std::string& config_text,
                       const std::filesystem::path& directory);

}  // namespace regroup

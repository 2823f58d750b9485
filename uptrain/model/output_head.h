// The output head of a model: final norm and output projection.
//
// Shapes: B windows of T tokens, D hidden size, V vocabulary.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "formats/model/model.h"
#include "uptrain/model/layers.h"
#include "uptrain/model/transformer.h"

namespace regroup {

/// The spec without its layers: embeddings, final norm and output projection.
ModelSpec without_layers(ModelSpec spec);

class OutputHead {
 public:
  /// Reads its tensors, in fp32.
  OutputHead(const Model& source, c10::Device device);

  /// Output of the (decoder's) last layer, [B, T, D], see LayerWalk::hidden() -> inputs of the
  /// logits, [B·T, D] and [V, D].
  LmHeadInputs lm_head_inputs(const at::Tensor& hidden) const;

  /// The same -> [B, T, V].
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  at::Tensor finished(const at::Tensor& hidden) const;

  OutputHead(const ModelSpec& spec, const Parameters& parameters);

  Transformer model_;
  std::optional<Norm> norm_;
  Linear project_out_;
};

}  // namespace regroup

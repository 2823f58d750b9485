// What comes after a model's layers: the last norm and the output projection.
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

/// A model of which nothing is left but what stands before and after its layers.
ModelSpec without_layers(ModelSpec spec);

class OutputHead {
 public:
  /// Reads what it needs, in fp32.
  OutputHead(const Model& source, c10::Device device);

  /// What the only or the decoder's last layer gave, [B, T, D], as LayerWalk::hidden() has it ->
  /// what logits are computed from, [B·T, D] and [V, D].
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

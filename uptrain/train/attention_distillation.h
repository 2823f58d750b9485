// A teacher's attention outputs as an additional target for the student, layer by layer.
//
// Shapes: B windows, T positions, D hidden size.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/transformer.h"

namespace regroup {

/// The mean of ‖s - t‖² / ‖t‖² over all attentions of a model (encoder self-attention, decoder
/// self-attention and cross-attention). s [B, T, D] is the student's attention output after the
/// output projection, t the teacher's. Each model reads its own hidden states, so the error of a
/// layer includes the errors of earlier layers. After the hidden-state loss of FitNets (Romero et
/// al. 2014, https://arxiv.org/abs/1412.6550, equation 3) without its regressor, since the two have
/// the same width.
class AttentionDistillation {
 public:
  /// Both models must outlive this object. Throws kBadInput unless they have the same number of
  /// attentions, of the same width.
  AttentionDistillation(Transformer& student, Transformer& teacher);
  AttentionDistillation(const AttentionDistillation&) = delete;
  AttentionDistillation& operator=(const AttentionDistillation&) = delete;
  ~AttentionDistillation();

  /// Records the attention outputs of both models until take(): one pass of each over the same
  /// windows. Holds the outputs of all attentions in memory.
  void watch();

  /// The loss of these passes: a scalar in fp32 (fp64 for fp64 models), with gradients for the
  /// student.
  at::Tensor take();

 private:
  void look_away();

  Transformer& student_;
  Transformer& teacher_;
  std::vector<at::Tensor> of_student_, of_teacher_;  // outputs, in the order of the passes
};

}  // namespace regroup

// What a teacher's attentions give as a further target: the student's shall give the same, layer by
// layer.
//
// Shapes: B windows, T positions, D hidden size.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/transformer.h"

namespace regroup {

/// The mean, over all attentions of a model (an encoder's, a decoder's, and what it sees of the
/// encoder), of ‖s - t‖² / ‖t‖², the squared error of what the student's adds to the residual
/// stream, s [B, T, D] behind the output projection, relative to the teacher's t. Where each model
/// reads its own hidden states, as here, the error of a layer includes that of those before. After
/// the hidden-state loss of FitNets (Romero et al. 2014, https://arxiv.org/abs/1412.6550, equation
/// 3) without its regressor, since the two have the same width.
class AttentionDistillation {
 public:
  /// Both models must outlive this. Throws kBadInput unless they have as many attentions, of the
  /// same width.
  AttentionDistillation(Transformer& student, Transformer& teacher);
  AttentionDistillation(const AttentionDistillation&) = delete;
  AttentionDistillation& operator=(const AttentionDistillation&) = delete;
  ~AttentionDistillation();

  /// Looks at what both compute until take(), one pass of each over the same windows. In memory are
  /// the outputs of all attentions.
  void watch();

  /// Of these passes: a scalar in fp32 (fp64 for fp64 models), with gradients for the student.
  at::Tensor take();

 private:
  void look_away();

  Transformer& student_;
  Transformer& teacher_;
  std::vector<at::Tensor> of_student_, of_teacher_;  // outputs, in the order of the passes
};

}  // namespace regroup

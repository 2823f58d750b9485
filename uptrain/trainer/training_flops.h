// What a model and its training come to in parameters, tokens and floating-point operations.
#pragma once

#include <cstdint>

#include "formats/spec/model_spec.h"
#include "uptrain/objective/objective.h"

namespace regroup {

/// Elements of all tensors the model computes with.
std::int64_t count_parameters(const ModelSpec& spec);

/// Those that a token is multiplied with: all but the tables that it is looked up in.
std::int64_t multiplied_weights(const ModelSpec& spec);

/// The number of elements of a tensor, as a number that cannot overflow.
double elements_of(const Shape& shape);

/// Tokens that pass through each stack for one window; a decoder alone sees all of them.
struct StackTokens {
  double encoder = 0.0, decoder = 0.0;
};
StackTokens tokens_of(const Task& task, std::int64_t sequence_length);

/// Floating-point operations to train on one token in a sequence of T: 6 for each weight that
/// multiplies (embeddings that are only looked up do not), and 6·H·d·T per layer with attention for
/// its causal half, twice that where all of it counts. Chowdhery et al., PaLM, appendix B,
/// https://arxiv.org/abs/2204.02311. Of an encoder-decoder it is the mean over the task's windows,
/// whose tokens are read in part by the one, in part by the other.
double training_flops_per_token(const ModelSpec& spec, const Task& task,
                                std::int64_t sequence_length);

}  // namespace regroup

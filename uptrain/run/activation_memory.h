// Estimates the memory of what the passes of a model keep.
#pragma once

#include <cstdint>

#include "formats/spec/model_spec.h"
#include "uptrain/run/uptrain_settings.h"
#include "uptrain/trainer/training_flops.h"

namespace regroup {

double bytes_per_element(Precision precision);

/// Bytes that a batch keeps for its backward pass.
double activation_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                        const StackTokens& tokens);

/// Bytes that one block keeps of a batch, in a type of `element` bytes: that which keeps most.
double largest_block_bytes(const UptrainSettings& settings, const ModelSpec& spec, double element,
                           const StackTokens& tokens);

/// Bytes that the backward pass of one block adds to what the block keeps of a batch: the gradients
/// of its intermediate results that exist together, as counted on the paper device.
double backward_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                      const StackTokens& tokens);

/// Bytes of the joined keys and values of sequences that ranks share, as the last rank keeps them
/// for its backward pass.
double shared_sequence_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                             const StackTokens& tokens);

/// Bytes of the masks of a sliding window, see SlidingWindow: one for whole blocks and one for the
/// last; off the CPU a row for each query head of a group.
double window_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                    std::int64_t sequence_length);

/// Bytes of the outputs of all attentions of two models, and their differences in fp32.
double attention_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                       const StackTokens& tokens);

}  // namespace regroup

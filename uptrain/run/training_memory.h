// The memory that training takes: weights, gradients, states, activations; and the bytes that a
// step moves.
#pragma once

#include <cstdint>

#include "formats/spec/model_spec.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

// Sizes of a model's blocks.

/// Numbers of elements.
struct BlockElements {
  double outside = 0.0;  ///< in no block: embeddings, head, last norms
  double inside = 0.0;   ///< in all blocks
  double largest = 0.0;  ///< in the largest block
  double last = 0.0;     ///< in the last block
  double largest_tensor = 0.0, largest_outside = 0.0;  ///< of one tensor, in a block and in none
};

/// Of the blocks of all stacks.
BlockElements block_elements(const ModelSpec& spec);

// Estimates the memory of training before it starts.

/// Bytes on the device, by what they are for.
struct TrainingMemory {
  double weights = 0.0;      ///< of the model in the type it computes in, trained or not
  double masters = 0.0;      ///< fp32 copies of trained weights, or their lower bits; none in fp32
  double gradients = 0.0;    ///< their sum in fp32, and those of one batch; at the most
  double optimizer = 0.0;    ///< its state
  double activations = 0.0;  ///< kept for the backward pass of a batch, or made in it
  double logits = 0.0;       ///< one chunk
  double teacher = 0.0;      ///< its weights and attention outputs
  /// Copies of one tensor in wider types during the update, beyond activations and logits, which do
  /// not exist then.
  double update = 0.0;

  /// Bytes of the above that are never needed at the same time as the others.
  double not_at_once = 0.0;

  /// Bytes in the device's host, in MemoryMode::kHost: masters, optimizer, gradients, pinned memory
  /// for transfers.
  double host = 0.0;

  /// All bytes on the device.
  double total() const {
    return weights + masters + gradients + optimizer + activations + logits + teacher + update -
           not_at_once;
  }
};

/// Estimate for training on sequences of that length, without the teacher, in the memory mode of
/// `settings` (kFull unless set). Excludes the overhead of allocators and libraries.
TrainingMemory training_memory(const UptrainSettings& settings, const ModelSpec& spec,
                               const Task& task, std::int64_t sequence_length);

/// Bytes of a teacher's weights, of its pass over a batch and, with attention distillation, of both
/// models' attention outputs and their difference.
double teacher_bytes(const UptrainSettings& settings, const ModelSpec& teacher, const Task& task,
                     std::int64_t sequence_length);

/// Bytes of a saved state: masters and optimizer state.
double saved_state_bytes(const UptrainSettings& settings, const ModelSpec& spec);

double bytes_per_element(Precision precision);

/// Estimates what the passes over a batch keep in memory, in bytes.
struct PassMemory {
  const UptrainSettings& settings;
  const ModelSpec& spec;
  StackTokens tokens;  ///< of a sequence, or of a rank's part of it

  /// What is kept for the backward pass.
  double kept() const;

  /// What one block keeps in a type of `element` bytes: that which keeps most.
  double largest_block(double element) const;

  /// What the backward pass of one block adds to what the block keeps: the gradients of its
  /// intermediate results that exist together, as counted on the paper device.
  double backward() const;

  /// The joined keys and values of sequences that ranks share, as the last rank keeps them for its
  /// backward pass.
  double shared_sequences() const;

  /// The masks of a sliding window, see SlidingWindow: one for whole blocks and one for the last;
  /// off the CPU a row for each query head of a group.
  double window_masks(std::int64_t sequence_length) const;

  /// The outputs of all attentions of two models, and their differences in fp32.
  double attention_outputs() const;
};

// Bytes that travel between ranks in one step, counted before a run starts.

/// Bytes per rank and step, the mean of all ranks. Algorithms of the process group may move more:
/// what passes through a rank on its way to others is not counted.
struct TrainingTraffic {
  double weights = 0.0;    ///< received: weights that other ranks own
  double gradients = 0.0;  ///< sent to the ranks that own their weights, in fp32

  /// Sent to the ranks with the same part of other copies, which sum their gradients in fp32: twice
  /// the part that they own, less a share (an all-reduce as a ring).
  double copies = 0.0;

  /// Received: keys and values of the other parts of sequences, in each pass; sent: their
  /// gradients, in fp32.
  double sequences = 0.0;

  double total() const { return weights + gradients + copies + sequences; }
};

/// None with a single rank. `teacher` is null without one. `sequence_length`: in tokens.
TrainingTraffic training_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                                 const ModelSpec* teacher, std::int64_t sequence_length);

}  // namespace regroup

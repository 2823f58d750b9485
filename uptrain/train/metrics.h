// Figures of a step.
#pragma once

#include <cstdint>
#include <filesystem>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/spec/model_spec.h"
#include "uptrain/train/objective.h"

namespace regroup {

// Counts parameters, tokens and FLOPs of a model and its training.

/// Layers that have an attention of that role.
std::int64_t attending_layers(const ModelSpec& spec, AttentionRole role);

/// Elements of all tensors the model computes with.
std::int64_t count_parameters(const ModelSpec& spec);

/// Elements that a token is multiplied with: all except embedding tables that are only looked up
/// and experts that do not compute it.
std::int64_t multiplied_weights(const ModelSpec& spec);

/// The number of elements of a tensor, as double to avoid overflow.
double elements_of(const Shape& shape);

/// Tokens that pass through each stack per window; a decoder-only model sees all of them.
struct StackTokens {
  double encoder = 0.0, decoder = 0.0;
};
StackTokens tokens_of(const Task& task, std::int64_t sequence_length);

/// FLOPs to train on one token in a sequence of T: 6 per multiplied weight (not embeddings that are
/// only looked up), plus 6·H·d·T per layer with causal attention, or twice that if it is
/// bidirectional. Chowdhery et al., PaLM, appendix B, https://arxiv.org/abs/2204.02311. For an
/// encoder-decoder it is the mean over the task's windows, whose tokens are split between the two
/// stacks.
double training_flops_per_token(const ModelSpec& spec, const Task& task,
                                std::int64_t sequence_length);

/// The metrics of a run: an append-only file of JSON lines, each with its "step".
class MetricsLog {
 public:
  /// Opens or creates `path` and truncates it after `last_step`: lines of later steps, which a
  /// resumed run will write again, and an incomplete line. Throws kBadInput if it is not a regular
  /// file.
  MetricsLog(const std::filesystem::path& path, std::int64_t last_step);

  /// Appends one line; it is in the file when this returns. Throws kEnvironment.
  void append(const Json& line);

 private:
  File file_;
  std::uint64_t end_ = 0;
};

}  // namespace regroup

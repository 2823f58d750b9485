// Decoding, and its speed.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/kv_cache.h"
#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"

namespace regroup {

// Prefill and greedy decoding with a KV cache.

/// Reads tokens, int64 [B, T], at most `chunk` at a time to save memory. Returns the logits of the
/// last token, [B, V]. Throws kUsage if the cache cannot hold them.
at::Tensor read_tokens(const Transformer& model, const at::Tensor& tokens, KvCache& cache,
                       std::int64_t chunk);

/// Decodes `count` tokens of each sequence greedily, starting from `logits`, [B, V] -> int64 [B,
/// count], on the model's device, without synchronising it. `logits` become those of the last
/// token.
at::Tensor decode_greedily(const Transformer& model, at::Tensor& logits, KvCache& cache,
                           std::int64_t count);

// Measures decoding time per token with a KV cache, for models that differ in their kv heads.

struct DecodeVariant {
  std::string name;
  Transformer model;
  std::uint64_t weight_bytes = 0;
  std::uint64_t dense_bytes = 0;   ///< of these, read by each step
  std::uint64_t expert_bytes = 0;  ///< of all experts

  /// Bytes of weights that a step of `batch` sequences is expected to read; of experts see
  /// ModelSpec::share_of_experts().
  double step_weight_bytes(std::int64_t batch) const;
};

DecodeVariant make_decode_variant(const std::string& name, const ModelSpec& spec,
                                  const Parameters& parameters);

/// The same model with `kv_heads` in the self- and cross-attention of every decoder layer: smaller
/// tensors keep their leading part. It takes as long as a converted model; its predictions are
/// meaningless. Throws kUsage if the number does not divide the present kv heads.
DecodeVariant with_leading_kv_heads(const std::string& name, const ModelSpec& spec,
                                    const Parameters& parameters, std::int64_t kv_heads);

struct DecodeLoad {
  std::int64_t batch = 1;    ///< sequences at a time
  std::int64_t context = 0;  ///< tokens in the cache when decoding begins
  std::int64_t tokens = 16;  ///< of each sequence, decoded per round
  std::int64_t rounds = 5;
  /// Context tokens read at a time; none: the cache is filled with noise.
  std::optional<std::int64_t> prefill_chunk;
  /// Sliding window and attention sinks: see KvCacheSettings.
  std::optional<std::int64_t> window;
  std::int64_t sinks = 0;
  /// Records the launches of a round as a graph of the device, where it has graphs, as serving
  /// engines do: what is measured then is the device, not the host that launches.
  bool graphs = true;
};

struct DecodeSpeed {
  double seconds_per_token = 0.0;  ///< of one step, one token per sequence
  std::uint64_t cache_bytes = 0;   ///< of the context, or of its window
  std::optional<double> prefill_seconds;
  std::optional<std::string> graph_obstacle;  ///< why rounds were not a graph; none: they were
};

/// Decodes greedily with all variants in turn in each round, so that other load on the machine
/// affects all of them, and returns the median over rounds. Synchronises the device only at the
/// ends of a round. Holds all caches in memory at once. Throws kInterrupted when `stop` is set,
/// kUsage if a model cannot hold that many tokens.
std::vector<DecodeSpeed> measure_decoding(const std::vector<DecodeVariant>& variants,
                                          const DecodeLoad& load, const std::atomic<bool>& stop);

}  // namespace regroup

// How long a decoder takes for a token when it remembers keys and values of those before, for
// models that differ in their kv heads.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"

namespace regroup {

/// A model to be measured.
struct DecodeVariant {
  std::string name;
  Transformer model;
  std::uint64_t weight_bytes = 0;
  std::uint64_t step_weight_bytes = 0;  ///< of them, those that each step reads
};

DecodeVariant make_decode_variant(const std::string& name, const ModelSpec& spec,
                                  const Parameters& parameters);

/// The same with `kv_heads` in every layer that attends, in the decoder's own and in
/// cross-attention: tensors that become smaller keep their leading part. It takes the time that a
/// converted model takes; what it predicts is of no use. Throws kUsage where the number does not
/// divide the heads there are.
DecodeVariant with_leading_kv_heads(const std::string& name, const ModelSpec& spec,
                                    const Parameters& parameters, std::int64_t kv_heads);

/// What is measured.
struct DecodeLoad {
  std::int64_t batch = 1;    ///< sequences at a time
  std::int64_t context = 0;  ///< tokens in the cache when decoding begins
  std::int64_t tokens = 16;  ///< of each sequence, decoded per round
  std::int64_t rounds = 5;
  /// So many tokens of the context are read at a time; none: the cache is filled with noise.
  std::optional<std::int64_t> prefill_chunk;
  /// Tokens that stay in sight, and those at the beginning that do beside them: see
  /// KvCacheSettings.
  std::optional<std::int64_t> window;
  std::int64_t sinks = 0;
};

struct DecodeSpeed {
  double seconds_per_token = 0.0;  ///< of one step, which gives each sequence a token
  std::uint64_t cache_bytes = 0;   ///< of the context, or of what a window leaves of it
  std::optional<double> prefill_seconds;
};

/// Greedy decoding, all variants in turn in each round, so that they share what else the machine
/// does; the median over rounds. The device is waited for at the ends of a round alone. All caches
/// are in memory at once. Throws kInterrupted when `stop` is set, kUsage for what a model cannot
/// hold.
std::vector<DecodeSpeed> measure_decoding(const std::vector<DecodeVariant>& variants,
                                          const DecodeLoad& load, const std::atomic<bool>& stop);

}  // namespace regroup

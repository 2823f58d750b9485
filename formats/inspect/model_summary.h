// What headers and config alone say about a checkpoint: the facts behind `regroup inspect`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/inspect/kv_cache_size.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// One of a model's attentions.
struct AttentionSummary {
  AttentionRole role = AttentionRole::kSelf;
  std::vector<std::int64_t> kv_heads;         ///< per layer, as the tensors' shapes say
  std::vector<std::int64_t> config_kv_heads;  ///< per layer, as the config says
  std::string attention;                      ///< "mha", "gqa", "mqa" or "mixed"
  /// Bytes of keys and values that generating keeps, in the type of cache_dtype_of(): of a decoder
  /// for each token read or generated, of cross-attention for each token of the source. None where
  /// every token sees those after it: nothing is kept there.
  std::optional<std::uint64_t> kv_bytes_per_token;
};

/// Facts that cannot be told (a bare weight file has no config) are empty.
struct ModelSummary {
  std::filesystem::path path;
  std::optional<ModelSpec> spec;  ///< where there is a config.json, or no need of one
  std::string family;             ///< "unknown" when nothing gives it away
  std::string architecture;
  std::int64_t layers = 0;
  std::optional<std::int64_t> hidden_size, query_heads, head_dim, vocab_size;
  std::vector<std::int64_t> kv_heads;             ///< per layer, as the tensors' shapes say
  std::vector<std::int64_t> config_kv_heads;      ///< per layer, as the config says
  std::string attention;                          ///< "mha", "gqa", "mqa", "mixed" or empty
  std::string positions;                          ///< "rope", "alibi", "learned", "none" or empty
  std::vector<std::vector<double>> alibi_slopes;  ///< per layer

  std::string dtype;  ///< of most bytes
  std::map<std::string, std::uint64_t> bytes_by_dtype;
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  std::optional<std::uint64_t> kv_bytes_per_token;
  std::optional<KvCacheCost> kv_cache;  ///< none where nothing is kept, or heads are not known
  DType cache_dtype = DType::kF16;
  std::map<std::string, std::uint64_t> parameters_by_part;  ///< by name_of(ModelPart)
  /// Of an encoder-decoder: its encoder's, decoder's and cross-attention's. What stands above is
  /// the decoder's. Empty elsewhere.
  std::vector<AttentionSummary> roles;
  std::map<std::string, std::string> provenance;  ///< the "regroup.*" metadata, prefix cut off
  std::vector<std::string> disagreements;         ///< see formats/inspect/disagreements.h
};

/// Reads headers and config only. `path` is a model directory, an index, or one weight file;
/// `layout` a layout file for an architecture that no family describes. Throws
/// kBadInput when there is nothing of that kind, or its config cannot be understood.
ModelSummary summarize_model(const std::filesystem::path& path, const Checkpoint& checkpoint,
                             const std::filesystem::path& layout = {});

}  // namespace regroup

// What inspect prints of a model: its parts, its layers, and the whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/json.h"
#include "formats/model/conversion_record.h"
#include "formats/model/serving_cost.h"
#include "formats/spec/model_spec.h"
#include "formats/spec/tensor_names.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// One attention of one layer, with the layer's MLP and norms. In a decoder layer, MLP and norms
/// are counted with self-attention, not with cross-attention.
struct LayerSummary {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::int64_t query_heads = 0;  ///< 0 in a layer without attention
  std::int64_t kv_heads = 0;     ///< as the tensors' shapes say
  std::int64_t config_kv_heads = 0;
  std::optional<std::int64_t> window = std::nullopt;  ///< tokens a query sees
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
  /// Bytes of KV cache per token; none if there is no cache.
  std::optional<std::uint64_t> kv_bytes_per_token = std::nullopt;
};

/// All layers, role by role. Throws kBadInput if shapes do not give a whole number of heads.
std::vector<LayerSummary> summarize_layers(const ModelSpec& spec, const Checkpoint& checkpoint);

/// "embedding", "positions", "encoder" (the whole stack of an encoder-decoder), "attention",
/// "cross-attention", "mlp", "experts" (with their routers), "norms" or "output".
std::string_view name_of(ModelPart part);

/// Tensor names, each once. They are views of the spec or layer, which must outlive this.
using ModelParts = std::vector<std::pair<std::string_view, ModelPart>>;

/// Every tensor the model uses, and its part.
ModelParts parts_of(const ModelSpec& spec);

/// The same for one layer of any stack: kAttention, kCross, kMlp, kExperts, kNorms, and kPositions
/// for T5's relative biases.
ModelParts parts_of_layer(const LayerTensors& layer);

/// The tensors that generating one token reads: all except embeddings that are only looked up and
/// the encoder, which runs once before.
std::vector<std::string> names_read_per_step(const ModelSpec& spec);

/// The bytes of these tensors; of experts only the share that one token uses.
std::uint64_t bytes_read_per_step(const ModelSpec& spec, const Checkpoint& checkpoint);

/// The bytes of all experts, without their routers.
std::uint64_t bytes_of_experts(const ModelSpec& spec, const Checkpoint& checkpoint);

/// One of a model's attentions.
struct AttentionSummary {
  AttentionRole role = AttentionRole::kSelf;
  std::vector<std::int64_t> kv_heads;         ///< per layer, as the tensors' shapes say
  std::vector<std::int64_t> config_kv_heads;  ///< per layer, as the config says
  std::string attention;                      ///< "mha", "gqa", "mqa", "mixed" or empty
  /// Bytes of KV cache per token (for cross-attention, per source token) in the dtype of
  /// cache_dtype_of(). None for bidirectional attention, which has no cache.
  std::optional<std::uint64_t> kv_bytes_per_token;
};

/// Unknown facts are empty (a bare weight file has no config). An encoder-decoder's attention is
/// here that of its decoder.
struct ModelSummary : AttentionSummary {
  std::filesystem::path path;
  std::optional<ModelSpec> spec;  ///< if there is a config.json or none is needed
  std::string family;             ///< "unknown" if it cannot be determined
  std::string architecture;
  std::int64_t layers = 0;
  std::optional<std::int64_t> hidden_size, query_heads, head_dim, vocab_size;
  std::string positions;                          ///< "rope", "alibi", "learned", "none" or empty
  std::vector<std::vector<double>> alibi_slopes;  ///< per layer

  std::string dtype;  ///< the dtype of most bytes
  std::map<std::string, std::uint64_t> bytes_by_dtype;
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  /// Parameters that compute one token, if the model has experts.
  std::optional<std::uint64_t> active_parameters;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  std::optional<KvCacheCost> kv_cache;  ///< none without a cache or if heads are unknown
  DType cache_dtype = DType::kF16;
  std::map<std::string, std::uint64_t> parameters_by_part;  ///< by name_of(ModelPart)
  /// For encoder-decoders: encoder, decoder and cross-attention. Otherwise empty.
  std::vector<AttentionSummary> roles;
  /// That of the config, which also records training; else that of the metadata.
  ConversionRecord record;
  std::vector<std::string> disagreements;  ///< see disagreements_in()
};

/// Reads headers and config only. `path` is a model directory, an index, or one weight file;
/// `layout` is a layout file for an unsupported architecture. Throws kBadInput if `path` is none of
/// these or its config is invalid.
ModelSummary summarize_model(const std::filesystem::path& path, const Checkpoint& checkpoint,
                             const std::filesystem::path& layout = {});

/// Sentences on where the config disagrees with the tensors (kv heads, shapes, missing tensors,
/// ties to the embedding), and on what stock loaders that accept the names in `config` would
/// compute differently. `spec` must be as described by the config. Reads headers only.
std::vector<std::string> disagreements_in(const ModelSpec& spec, const Checkpoint& checkpoint,
                                          const Json& config);

/// Sentences if the index's total_size disagrees with the tensors, and if it lists tensors that no
/// file has. None without an index.
std::vector<std::string> disagreements_of_index(const std::filesystem::path& path,
                                                const Checkpoint& checkpoint);

}  // namespace regroup

// A conversion as plain data: made and checked before a tensor is touched.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converter/heads/head_order.h"
#include "converter/pooling/attention_pooler.h"
#include "converter/target/target.h"
#include "converter/tensor_mapping/tensor_step.h"
#include "formats/model/model.h"
#include "formats/safetensors/safetensors_writer.h"

namespace regroup {

/// What becomes of the model's positions.
enum class PositionChange {
  kKeep,
  kAlibi,  ///< dropped for ALiBi's slopes: another model, which uptraining has to repair
};

struct ConversionRequest {
  /// One for all layers, or one per layer; empty: as many as there are.
  std::vector<std::int64_t> kv_heads = {};
  /// Which attention of an encoder-decoder is grouped; the GQA paper leaves the encoder's alone.
  std::vector<AttentionRole> roles = {AttentionRole::kSelf, AttentionRole::kCross};
  /// What is written: "same" architecture as the source's; "expanded": the same with every kv head
  /// stored so often that there is one per query head (or `stored_kv_heads`); "auto": an
  /// architecture that computes the same and whose loaders take grouped heads; or that
  /// architecture's name or model_type.
  std::string target = "same";
  std::optional<std::int64_t> stored_kv_heads = std::nullopt;
  PositionChange positions = PositionChange::kKeep;
  Pooling pooling = {};
  std::string grouping = "contiguous";  ///< the name of how `order` was chosen
  HeadOrder order = {};                 ///< in which heads are grouped with their neighbours
  /// Statistics of the source's inputs for methods that look at them; none: its norms stand in.
  std::shared_ptr<const Calibration> calibration = nullptr;
  std::shared_ptr<AttentionRefiner> refiner = nullptr;  ///< what improves pooled layers, or none
  std::optional<Container> container = std::nullopt;    ///< none: the source's own
  /// Of all floating tensors (Q8_0: of matrices, in GGUF); none: as they are.
  std::optional<DType> dtype = std::nullopt;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  bool allow_nonfinite = false;  ///< let NaN and infinities in K and V pass
};

/// Bytes before a conversion and after it.
struct CacheChange {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
};

struct ConversionPlan {
  ModelSpec spec;  ///< of the source
  std::string source_fingerprint;
  ModelSpec grouped;                   ///< the same with the kv heads that are left
  ModelSpec target;                    ///< of the result
  std::vector<std::int64_t> kv_heads;  ///< per layer, of the (decoder's) self-attention
  std::vector<TensorStep> steps;       ///< in the order they are written
  std::vector<std::string> dropped;    ///< source tensors that the result has no use for
  Container container = Container::kSafetensors;
  bool in_place = true;     ///< whether tensors keep their names, so that only attention changes
  std::string config_text;  ///< the result's config.json; empty where it has none
  std::map<std::string, std::string> metadata;  ///< of the result's safetensors files
  std::optional<GgufMetadata> gguf;             ///< of the result, a GGUF file
  std::vector<std::string> notes;  ///< what a user should know about loading the result
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  bool allow_nonfinite = false;
  std::optional<DType> dtype;  ///< that was asked for
  Pooling pooling;
  std::string grouping;
  HeadOrder order;
  std::shared_ptr<const Calibration> calibration;  ///< or none
  std::shared_ptr<AttentionRefiner> refiner;       ///< or none

  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;
  /// Keys and values that a token of the (decoder's) text leaves in the cache, and one of the
  /// encoder's; none where nothing is kept.
  std::optional<CacheChange> kv_bytes_per_token, cross_kv_bytes_per_token;
};

/// Plans the conversion of `source`. Throws kUsage for a request the model does not allow,
/// kBadInput for a model that cannot be converted (tensors that are missing, misshapen or
/// quantised).
ConversionPlan plan_conversion(const Model& source, const ConversionRequest& request);

/// Bytes of keys and values that one token adds to the cache over all layers.
std::uint64_t kv_bytes_per_token(const std::vector<std::int64_t>& kv_heads, std::int64_t head_dim,
                                 DType dtype);

}  // namespace regroup

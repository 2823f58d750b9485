// The plan of a conversion.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converter/convert/attention_pooler.h"
#include "converter/convert/loader_choice.h"
#include "converter/convert/target.h"
#include "converter/convert/tensor_step.h"
#include "converter/heads/heads.h"
#include "formats/model/model.h"
#include "formats/tensors/checkpoint_writer.h"

namespace regroup {

// A conversion as plain data, checked before any tensor is read.

/// How the model's positions are converted.
enum class PositionChange {
  kKeep,
  kAlibi,  ///< replaced by ALiBi: another model, which needs uptraining
};

struct ConversionRequest {
  /// One number for all layers, or one per layer; empty: unchanged.
  std::vector<std::int64_t> kv_heads = {};
  /// Which attentions of an encoder-decoder are grouped; the GQA paper does not group the
  /// encoder's.
  std::vector<AttentionRole> roles = {AttentionRole::kSelf, AttentionRole::kCross};
  /// The target architecture. "same": the source's; "expanded": the source's with repeated kv
  /// heads, one per query head (or `stored_kv_heads`); "auto": an equivalent architecture whose
  /// loaders support grouped heads; or an architecture's name or model_type.
  std::string target = "same";
  std::optional<std::int64_t> stored_kv_heads = std::nullopt;
  PositionChange positions = PositionChange::kKeep;
  Pooling pooling = {};
  std::string grouping = "contiguous";  ///< how `order` was chosen
  HeadOrder order = {};                 ///< heads are grouped with their neighbours in this order
  /// Statistics of the source's inputs for methods that need them; none: derived from its norms.
  std::shared_ptr<const Calibration> calibration = nullptr;
  std::shared_ptr<AttentionRefiner> refiner = nullptr;  ///< improves pooled layers, or none
  std::optional<Container> container = std::nullopt;    ///< none: the source's own
  /// The dtype of all floating tensors (Q8_0: of matrices, in GGUF); none: unchanged.
  std::optional<DType> dtype = std::nullopt;
  LoaderChoice loader = LoaderChoice::kAuto;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  bool allow_nonfinite = false;  ///< accept NaN and infinities in K and V
};

/// Bytes before a conversion and after it, each in the dtype that the cache of that model has: see
/// cache_dtype_of().
struct CacheChange {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  DType dtype_before = DType::kF16;
  DType dtype_after = DType::kF16;
};

struct ConversionPlan : ResultFiles {
  ConversionRequest request;  ///< with pooling.refined set
  ModelSpec spec;             ///< of the source
  std::string source_fingerprint;
  ModelSpec grouped;                 ///< the same with the remaining kv heads
  ModelSpec target;                  ///< of the result
  std::vector<TensorStep> steps;     ///< in the order they are written
  std::vector<std::string> dropped;  ///< source tensors that the result does not need
  Container container = Container::kSafetensors;
  std::map<std::string, std::string> metadata;  ///< of the result's safetensors files
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;
  /// Bytes of keys and values cached per (decoder) token, and per encoder token; none if nothing is
  /// cached.
  std::optional<CacheChange> kv_bytes_per_token, cross_kv_bytes_per_token;
};

/// Plans the conversion of `source`. Throws kUsage for a request that the model does not support,
/// kBadInput for a model that cannot be converted (tensors that are missing, quantised or of the
/// wrong shape).
ConversionPlan plan_conversion(const Model& source, const ConversionRequest& request);

/// The same for a reference that a result is compared with before it is published. It stays in
/// memory: since no loader reads it, it may be one that loaders would misread.
ConversionPlan plan_reference(const Model& source, const ConversionRequest& request);

/// Bytes of keys and values that one token adds to the cache over all layers.
std::uint64_t kv_bytes_per_token(const std::vector<std::int64_t>& kv_heads, std::int64_t head_dim,
                                 DType dtype);

}  // namespace regroup

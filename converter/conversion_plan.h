// A conversion as plain data: made and checked before a tensor is touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "converter/heads.h"
#include "formats/model.h"
#include "formats/model_spec.h"
#include "formats/safetensors_writer.h"

namespace regroup {

/// How the heads of one role get from the source tensor to the output tensor.
struct HeadMove {
  enum class Action { kCopy, kPoolMean };
  Action action = Action::kCopy;
  HeadBlocks from;
  HeadBlocks to;
};

/// One output tensor and where it comes from. Without moves it is the source tensor, unchanged.
struct TensorStep {
  OutputTensor output;  ///< its name is also the source tensor's
  std::vector<HeadMove> moves;

  bool unchanged() const { return moves.empty(); }
};

struct ConversionRequest {
  std::vector<std::int64_t> kv_heads;  ///< one for all layers, or one per layer
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  bool allow_nonfinite = false;  ///< let NaN and infinities in K and V pass
};

struct ConversionPlan {
  ModelSpec spec;                               ///< of the source
  std::vector<std::int64_t> kv_heads;           ///< per layer, of the result
  std::vector<TensorStep> steps;                ///< in the order of the source's bytes
  std::string config_text;                      ///< the result's config.json
  std::map<std::string, std::string> metadata;  ///< the result's safetensors metadata
  std::vector<std::string> notes;  ///< what a user should know about loading the result
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  bool allow_nonfinite = false;

  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint64_t kv_bytes_per_token_before = 0;
  std::uint64_t kv_bytes_per_token_after = 0;
};

/// Plans the conversion of `source`. Throws kUsage for a request the model does not allow,
/// kBadInput for a model that cannot be converted (tensors that are missing, misshapen or
/// quantised).
ConversionPlan plan_conversion(const Model& source, const ConversionRequest& request);

/// Bytes of keys and values that one token adds to the cache over all layers.
std::uint64_t kv_bytes_per_token(const std::vector<std::int64_t>& kv_heads, std::int64_t head_dim,
                                 DType dtype);

}  // namespace regroup

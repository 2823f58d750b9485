// Parts of a GGUF model: hyperparameters, tensors, positions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/families/gguf_graphs.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

// A GGUF model's hyper-parameters: the metadata keys under its architecture's name.

/// llama.cpp's limit on the number of layers.
inline constexpr std::int64_t kMaxGgufLayers = 512;
/// The largest value accepted for any size.
inline constexpr std::int64_t kMaxGgufSize = std::int64_t{1} << 31;

/// Reads <architecture>.<name>. Throws kBadInput naming the key for a value of another type or
/// outside the range given.
class GgufHyperparameters {
 public:
  /// `metadata` must outlive this.
  GgufHyperparameters(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& where() const { return metadata_.where(); }

  /// A number from 1 to kMaxGgufSize.
  std::optional<std::int64_t> optional_count(std::string_view name) const;

  /// The same, at most `most`; throws kBadInput if absent.
  std::int64_t count(std::string_view name, std::int64_t most = kMaxGgufSize) const;

  /// Any number; `absent` if there is none.
  std::int64_t count_or(std::string_view name, std::int64_t absent) const {
    return metadata_.count(key(name)).value_or(absent);
  }

  double number_or(std::string_view name, double absent) const {
    return metadata_.number(key(name)).value_or(absent);
  }

  /// One value for each of `layers`, expanded if the file has a single value. 0 means that the
  /// layer has none.
  std::optional<std::vector<std::int64_t>> per_layer(std::string_view name,
                                                     std::int64_t layers) const;

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

// The optional tensors of llama.cpp's graphs, and the names of all tensors.

/// Which optional tensors of llama.cpp's graphs are present.
struct GgufParts {
  bool fused_qkv = false;  ///< attn_qkv instead of attn_q, attn_k, attn_v
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool norm_bias = false;
  bool mlp_norm = false;
  bool second_norm = false;  ///< attn_norm_2
  bool qk_norm = false;
  bool position_embedding = false;
  bool head = false;  ///< output.weight
  bool head_bias = false;
  bool rope_factors = false;               ///< rope_freqs.weight
  std::vector<double> rope_divisors = {};  ///< its values, if they can be divisors
  bool longrope_factors = false;           ///< rope_factors_long.weight, rope_factors_short.weight
};

/// The parts present in a file.
GgufParts gguf_parts_in(const Checkpoint& checkpoint);

/// The layers before the first one with experts.
std::int64_t leading_dense_layers(const ModelSpec& spec);

/// Sets the names of all tensors of `spec` as in `graph`. The heads of `spec` must be set.
/// `mlp_widths` has one value per layer, 0 for layers without an MLP; if the model has experts, all
/// layers from `dense` on have them.
void name_gguf_tensors(ModelSpec& spec, const GgufGraph& graph, const GgufParts& parts,
                       std::span<const std::int64_t> mlp_widths, std::int64_t dense);

// RoPE, ALiBi or learned positions from the hyper-parameters of a GGUF file.

/// Sets the positions of `spec`, whose heads and max_positions must be set. Sets not_computable if
/// a ModelSpec cannot express them. Throws kBadInput for invalid values.
void read_gguf_positions(ModelSpec& spec, const GgufHyperparameters& parameters,
                         const GgufGraph& graph, const GgufParts& parts);

// Why a llama.cpp graph cannot compute a model.

/// The parts of `spec` that do not depend on the graph: all except fused_qkv and second_norm.
GgufParts gguf_parts_of(const ModelSpec& spec);

/// The first reason why `graph` cannot compute `spec`, such as "positions alibi, rope needed";
/// empty if it can.
std::string gguf_obstacle(const ModelSpec& spec, const GgufGraph& graph);

}  // namespace regroup

// Reading config.json: members with their type, the sizes of a decoder, and sliding windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// All getters throw kBadInput: "<file>: <key> is <found>, <allowed> is needed". A null counts as
/// absent. If several keys are given (old and new spellings), the first one present is used.
class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string_view where) : config_(config), where_(where) {}

  using Keys = std::initializer_list<std::string_view>;

  /// An integer from 1 to 2^31 - 1.
  std::int64_t count(Keys keys) const;
  std::optional<std::int64_t> optional_count(Keys keys) const;
  /// A token id: an integer below `vocab_size`.
  std::optional<std::int64_t> optional_token(std::string_view key, std::int64_t vocab_size) const;
  std::optional<double> optional_number(Keys keys) const;
  double number_or(Keys keys, double absent) const;
  bool flag_or(Keys keys, bool absent) const;
  std::string text_or(Keys keys, std::string absent) const;
  /// An activation under one of transformers' names; `absent` is such a name, too.
  Activation activation_or(Keys keys, const std::string& absent) const;

  /// Kv heads per layer, from a number or a list with one entry per layer. `absent` if the key is
  /// absent.
  std::vector<std::int64_t> kv_heads(std::string_view key, std::int64_t layers,
                                     std::int64_t query_heads, std::int64_t absent) const;

  /// The nested object at `key`, or an empty one if absent.
  ConfigReader object(std::string_view key) const;
  /// The value at `key`, or nullptr if it is absent or a JSON null.
  const Json* find(std::string_view key) const;
  bool empty() const { return config_.empty(); }
  const Json& json() const { return config_; }
  /// Whether `key` is present, even with a null value.
  bool mentions(std::string_view key) const { return config_.contains(key); }
  const std::string& where() const { return where_; }

 private:
  const Json* find_first(Keys keys, std::string& key) const;
  template <typename T>
  std::optional<T> typed(Keys keys, bool (Json::*has_type)() const, std::string_view needed) const;

  const Json& config_;
  std::string where_;
};

/// The config of a model with its tensors, which tell what the config leaves open.
struct ModelConfig : ConfigReader {
  ModelConfig(const Json& config, std::string_view where, const Checkpoint& tensors)
      : ConfigReader(config, where), checkpoint(tensors) {}

  /// Whether the checkpoint has a tensor of that name.
  bool stores(std::string_view name) const { return checkpoint.find(name) != nullptr; }
  /// Whether there are no weights yet.
  bool to_be_made() const { return checkpoint.files().empty() && checkpoint.tensors().empty(); }

  const Checkpoint& checkpoint;
};

/// The name that transformers writes.
std::string_view config_name_of(Activation activation);

/// Creates the layers of a stack, without tensor names. Their number is checked against the
/// checkpoint before anything is allocated.
void read_layers(std::vector<LayerTensors>& layers, const ModelConfig& config,
                 ConfigReader::Keys keys);

/// Sets query_heads, and head_dim to `explicit_head_dim` or else hidden_size / query_heads, which
/// must then be a whole number.
void set_heads(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys heads_keys,
               std::optional<std::int64_t> explicit_head_dim);

/// Reads the hidden size, the query heads and the number of layers under the keys given,
/// vocab_size, and num_key_value_heads, as many as the query heads unless given. Creates the layers
/// without tensor names. `head_dim` is as for set_heads(). Throws kBadInput for missing and
/// impossible values.
void read_stack_sizes(ModelSpec& spec, const ModelConfig& config,
                      ConfigReader::Keys hidden_keys = {"hidden_size"},
                      ConfigReader::Keys heads_keys = {"num_attention_heads"},
                      ConfigReader::Keys layers_keys = {"num_hidden_layers"},
                      std::optional<std::int64_t> head_dim = std::nullopt);

/// Lets all norms be LayerNorm, with the epsilon at `keys`.
void read_layer_norm(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys keys,
                     double absent = 1e-5);

/// Reads the kv heads of an encoder-decoder's roles, as many as the query heads unless given. Its
/// layers must exist.
void read_kv_heads_of_roles(ModelSpec& spec, const ConfigReader& config);

/// Lets positions begin at row `rows` of the table of positions, whose size spec.max_positions is.
/// Throws kBadInput if none is left.
void skip_first_positions(ModelSpec& spec, const ConfigReader& config, std::int64_t rows);

/// The first of the given prefixes under which `name` is stored; the first prefix if none matches.
std::string find_prefix(const ModelConfig& config, std::initializer_list<std::string_view> prefixes,
                        std::string_view name);

/// Names the output projection, which is stored as `name`. If tie_word_embeddings is true (`tied`
/// where it is absent), settle_ties() in formats/spec/tensor_names.h decides whether it is one of
/// its own.
void name_output(ModelSpec& spec, const ConfigReader& config, const std::string& name, bool tied);

/// Names the bias of an output projection that loaders add as `used` and tie to `tied` together
/// with the weight. Call name_output() before.
void name_output_bias(ModelSpec& spec, const ModelConfig& config, const std::string& used,
                      const std::string& tied);

/// A linear layer or norm stored as `name`.weight and, if `bias`, `name`.bias.
LinearTensors linear_at(const std::string& name, bool bias);
NormTensors norm_at(const std::string& name, bool bias);

/// What a family calls the parts of a block, after the block's own name. Empty: there is none. If
/// gate and up have the same name, they are one tensor.
struct BlockNames {
  struct Attention {
    std::string_view norm = {};
    std::string_view qkv = {};  ///< in kSeparate, a pattern: q, k or v takes the place of "*"
    std::string_view o = {};
  };
  struct Mlp {
    std::string_view norm = {}, gate = {}, up = {}, down = {};
  };
  Packing packing = Packing::kSeparate;
  Attention attention = {};
  Mlp mlp = {};
};

/// Which parts of a block have biases.
struct BlockBiases {
  bool qkv = false, o = false, mlp = false, norm = false;
};
inline constexpr BlockBiases kAllBiases{true, true, true, true};

/// The attention of a block whose name, with a dot, is `block`.
AttentionLayout attention_at(const std::string& block, const BlockNames& names,
                             const BlockBiases& biases);

/// Sets the tensors of attention and MLP, and their norms, of the layers `stack`0, `stack`1, ….
void name_blocks(std::vector<LayerTensors>& layers, const std::string& stack,
                 const BlockNames& names, const BlockBiases& biases);

/// What a family calls what its only stack has around the blocks. Models that were saved without
/// their head lack the prefix.
struct StackNames {
  std::string_view prefix, embedding;
  std::string_view blocks;           ///< before a block's number
  std::string_view final_norm = {};  ///< empty: there is none
};

/// Names the token embedding, all blocks and the last norm. Returns the prefix in the checkpoint.
std::string name_stack(ModelSpec& spec, const ModelConfig& config, const StackNames& names,
                       const BlockNames& block, const BlockBiases& biases);

// Sliding windows in some of the layers: layer_types and sliding_window.

/// Whether each layer has the sliding window, from layer_types ("sliding_attention" or
/// "full_attention"); as `usual` says without the key. Throws kBadInput for another list.
std::vector<bool> sliding_layers(const ConfigReader& config, std::size_t layers,
                                 const std::function<bool(std::size_t layer)>& usual);

/// Reads the window of all layers, sliding_window: 4096 without the key, none for null.
void read_sliding_window(ModelSpec& spec, const ConfigReader& config);

/// Gives the layers in `slides` a window of `width`, and the others none.
void set_windows(ModelSpec& spec, const std::vector<bool>& slides, std::int64_t width);

/// Reads layer_types (without the key, all layers slide but every `pattern`-th) and sliding_window
/// (4096 without the key). Throws kBadInput if layers slide in a window of null.
void read_layer_windows(ModelSpec& spec, const ConfigReader& config, std::int64_t pattern);

// RoPE settings in configs: rope_theta and rope_scaling (transformers up to v4), or
// rope_parameters.

/// A family's defaults for absent config keys, and its keys outside rope_parameters.
struct RopeDefaults {
  struct Keys {
    std::string_view theta = "rope_theta", partial = "partial_rotary_factor";
  };
  double theta = 10000.0;
  double partial = 1.0;  ///< the rotated fraction of each head
  /// Those of the pretraining, whatever the scaling says.
  std::optional<double> original_positions = std::nullopt;
  Keys keys = {};
};

/// Makes `spec` a RoPE model. Reads theta, the rotated fraction of each head and the scaling. An
/// unknown rope_type makes the model not computable. spec.head_dim and spec.max_positions must be
/// set before the call. Throws kBadInput for impossible values.
void read_rope(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& defaults = {});

/// The same for models whose layers with a sliding window have a RoPE of their own: rope_parameters
/// has full_attention and sliding_attention. Windows must be set before the call. Without it,
/// rope_scaling applies to the layers without a window.
void read_rope_of_windows(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& whole,
                          const RopeDefaults& in_window);

}  // namespace regroup

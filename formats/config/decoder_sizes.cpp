#include "formats/config/decoder_sizes.h"

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/checkpoint/tensor_reader.h"

namespace regroup {
namespace {

constexpr std::int64_t kMaxHeads = 1 << 16;

}  // namespace

std::int64_t read_layer_count(const ConfigReader& config, ConfigReader::Keys keys,
                              const Checkpoint& checkpoint) {
  const std::int64_t layers = config.count(keys);
  const auto tensors = static_cast<std::int64_t>(checkpoint.tensors().size());
  const bool to_be_made = checkpoint.files().empty() && tensors == 0;  // no weights yet
  if (layers > tensors && !to_be_made) {
    throw_bad_input("{}: {} is {}, but the checkpoint has only {} tensors", config.where(),
                    *keys.begin(), layers, tensors);
  }
  return layers;
}

void set_heads(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys heads_keys,
               std::optional<std::int64_t> explicit_head_dim) {
  spec.query_heads = config.count(heads_keys);
  if (spec.query_heads > kMaxHeads) {
    throw_bad_input("{}: {} is {}, at most {} allowed", config.where(), *heads_keys.begin(),
                    spec.query_heads, kMaxHeads);
  }
  if (!explicit_head_dim && spec.hidden_size % spec.query_heads != 0) {
    throw_bad_input("{}: hidden size {} is no multiple of {} heads, and there is no head_dim",
                    config.where(), spec.hidden_size, spec.query_heads);
  }
  spec.head_dim = explicit_head_dim.value_or(spec.hidden_size / spec.query_heads);
}

void read_stack_sizes(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys layers_keys,
                      const Checkpoint& checkpoint) {
  const std::int64_t layers = read_layer_count(config, layers_keys, checkpoint);
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);
}

void skip_first_positions(ModelSpec& spec, const ConfigReader& config, std::int64_t rows) {
  spec.position_offset = rows;
  spec.max_positions = spec.max_positions.value() - rows;
  if (*spec.max_positions < 1) {
    throw_bad_input("{}: max_position_embeddings leaves no position after the first {} rows",
                    config.where(), rows);
  }
}

std::string find_prefix(const Checkpoint& checkpoint,
                        std::initializer_list<std::string_view> prefixes, std::string_view name) {
  for (const std::string_view prefix : prefixes) {
    if (checkpoint.find(std::string(prefix).append(name)) != nullptr) {
      return std::string(prefix);
    }
  }
  return std::string(*prefixes.begin());
}

void name_output(ModelSpec& spec, const ConfigReader& config, const std::string& name, bool tied) {
  (config.flag_or({"tie_word_embeddings"}, tied) ? spec.tied_head : spec.lm_head) = name;
}

void name_output_bias(ModelSpec& spec, const Checkpoint& checkpoint, const std::string& used,
                      const std::string& tied) {
  const TensorInfo* own = checkpoint.find(used);
  const TensorInfo* shared = checkpoint.find(tied);
  const bool is_tied = spec.lm_head.empty();
  spec.lm_head_bias = is_tied && own == nullptr ? tied : used;
  if (shared != nullptr && own == nullptr && !is_tied) {
    spec.lm_head_bias.clear();
    spec.contradictions.push_back(
        fmt::format("{} is not used: with tie_word_embeddings = false the bias is {}, which is "
                    "missing and counts "
                    "as zeros, as in transformers 5",
                    printable(tied), printable(used)));
  } else if (shared != nullptr && own != nullptr && is_tied &&
             !same_contents(checkpoint, *own, *shared)) {
    spec.contradictions.push_back(
        fmt::format("{} differs from {}, which is used, as in "
                    "transformers 5",
                    printable(tied), printable(used)));
  }
}

Activation activation_from_name(const std::string& name, const std::string& where) {
  if (name == "silu" || name == "swish") {
    return Activation::kSilu;
  }
  if (name == "gelu" || name == "gelu_python") {
    return Activation::kGeluErf;
  }
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") {
    return Activation::kRelu;
  }
  if (name == "relu2") {
    return Activation::kReluSquared;
  }
  throw_bad_input("{}: unknown activation {}; known: silu, gelu, gelu_new, relu, relu2", where,
                  printable(name));
}

LinearTensors linear_at(const std::string& name, bool bias) {
  return {name + ".weight", bias ? name + ".bias" : "", false};
}

NormTensors norm_at(const std::string& name, bool bias) {
  return {name + ".weight", bias ? name + ".bias" : ""};
}

}  // namespace regroup

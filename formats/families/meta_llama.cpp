// Llama in the format of Meta's own code: params.json, layers.N.attention.wq, RoPE on neighbouring
// pairs. Mistral's first releases have the same format, and add head_dim, hidden_dim and
// sliding_window.
// https://github.com/meta-llama/llama-models
#include <algorithm>
#include <array>
#include <cmath>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/unknown_architecture.h"
#include "formats/spec/config_reader.h"
#include "formats/spec/tensor_names.h"

namespace regroup {
namespace {

// Keys that are read below, and keys that do not affect the model.
constexpr std::array<std::string_view, 19> kKnownParams{
    "quantization", "quantization_args",  // check_quantisation()
    "dim",          "n_layers",          "n_heads",         "n_kv_heads",          "vocab_size",
    "norm_eps",     "rope_theta",        "use_scaled_rope", "rope_scaling_factor", "multiple_of",
    "head_dim",     "hidden_dim",        "max_seq_len",     "ffn_dim_multiplier",  "max_batch_size",
    "model_type",   "sliding_window"};

// An unknown key may mean a different model.
void note_unknown_keys(ModelSpec& spec, const Json& params) {
  for (const auto& [key, value] : params.items()) {
    const bool known = contains(kKnownParams, key);
    if (!known && spec.not_computable.empty()) {
      spec.not_computable = "params.json key " + printable(key);
    }
  }
}

// The number of rows of a matrix. Throws for any other tensor.
std::int64_t rows_of(const ModelConfig& params, const std::string& name) {
  const TensorInfo& tensor = params.checkpoint.at(name);
  if (tensor.shape.size() != 2 || tensor.shape.front() < 1) {
    throw_bad_input("{} is {}, a matrix is needed", place_of(params.checkpoint, tensor),
                    text_of(tensor.shape));
  }
  return tensor.shape.front();
}

// In Llama 1 and 2, vocab_size is -1 and the tokenizer determines it.
std::int64_t read_vocab_size(const ModelConfig& params) {
  const Json* given = params.find("vocab_size");
  const bool left_open = given == nullptr || (given->is_number_integer() && *given == -1);
  return left_open ? rows_of(params, "tok_embeddings.weight") : params.count({"vocab_size"});
}

// Takes the size from the tensors. The value computed from the parameters must agree.
std::int64_t read_intermediate_size(const ModelConfig& params, std::int64_t dim) {
  const std::int64_t stored = rows_of(params, "layers.0.feed_forward.w1.weight");
  std::int64_t expected = params.optional_count({"hidden_dim"}).value_or(0);
  const auto multiple_of = params.optional_count({"multiple_of"});
  if (expected == 0 && multiple_of) {
    const double multiplier = params.number_or({"ffn_dim_multiplier"}, 1.0);
    const double width = std::floor(multiplier * static_cast<double>(8 * dim / 3));
    if (!(width >= 1.0 && width < 1e12)) {
      throw_bad_input("{}: ffn_dim_multiplier is {}", params.where(), multiplier);
    }
    const std::int64_t blocks =
        (static_cast<std::int64_t>(width) + *multiple_of - 1) / *multiple_of;
    expected = blocks * *multiple_of;
  }
  if (expected != 0 && expected != stored) {
    throw_bad_input("{}: the MLP should have {} rows, layers.0.feed_forward.w1.weight has {}",
                    params.where(), expected, stored);
  }
  return stored;
}

// Llama 3.1's scaling. Its factor is a constant in Meta's code and not in params.json. The two
// small models of 3.2 have another factor, and are recognised by their sizes.
void read_scaling(ModelSpec& spec, const ConfigReader& params) {
  struct Release {
    std::int64_t dim, layers;
    double factor;
  };
  constexpr std::array<Release, 5> kReleases{
      {{2048, 16, 32.0}, {3072, 28, 32.0}, {4096, 32, 8.0}, {8192, 80, 8.0}, {16384, 126, 8.0}}};
  if (!params.flag_or({"use_scaled_rope"}, false)) {
    return;
  }
  const auto release = std::ranges::find_if(kReleases, [&](const Release& known) {
    return known.dim == spec.hidden_size && known.layers == spec.layer_count();
  });
  RopeScaling& scaling = spec.rope.scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor =
      params.number_or({"rope_scaling_factor"}, release == kReleases.end() ? 0.0 : release->factor);
  scaling.low_frequency_factor = 1.0;
  scaling.high_frequency_factor = 4.0;
  scaling.original_positions = 8192.0;
  if (!(scaling.factor > 0.0)) {
    scaling.factor = 1.0;
    spec.not_computable = "use_scaled_rope without a known rope_scaling_factor";
  }
}

// The context that a release was trained for, which Meta's code has and params.json has not. What
// Llama 1 and 2 state is alike, and theirs differ.
std::optional<std::int64_t> context_of(const ConfigReader& params) {
  const auto stated = params.optional_count({"max_seq_len"});
  const double theta = params.number_or({"rope_theta"}, 10000.0);
  if (stated || theta != 500'000.0) {
    return stated;
  }
  return params.flag_or({"use_scaled_rope"}, false) ? 131'072 : 8192;
}

void read_meta_rope(ModelSpec& spec, const ConfigReader& params) {
  spec.positions = PositionKind::kRope;
  spec.rope.theta = params.number_or({"rope_theta"}, 10000.0);
  spec.rope.rotary_dim = spec.head_dim;
  spec.rope.interleaved = true;
  if (!(spec.rope.theta > 0.0) || spec.head_dim % 2 != 0) {
    throw_bad_input("{}: RoPE with theta {} on {} dimensions; an even number is needed",
                    params.where(), spec.rope.theta, spec.head_dim);
  }
}

constexpr BlockNames kMetaBlock{
    Packing::kSeparate,
    {"attention_norm", "attention.w*", "attention.wo"},
    {"ffn_norm", "feed_forward.w1", "feed_forward.w3", "feed_forward.w2"}};

}  // namespace

ModelSpec describe_meta(const Json& json, const Checkpoint& checkpoint, std::string_view where) {
  const ModelConfig params(json, where, checkpoint);
  ModelSpec spec;
  spec.contradictions = check_quantisation(params);
  spec.family = "llama";
  spec.architecture = "LlamaForCausalLM";
  spec.hidden_size = params.count({"dim"});
  set_heads(spec, params, {"n_heads"}, params.optional_count({"head_dim"}));
  read_layers(spec.layers, params, {"n_layers"});
  spec.kv_heads =
      params.kv_heads("n_kv_heads", spec.layer_count(), spec.query_heads, spec.query_heads);
  spec.kv_heads_key = {"n_kv_heads"};
  spec.loaders_read_kv_heads = true;
  spec.intermediate_size = read_intermediate_size(params, spec.hidden_size);
  spec.vocab_size = read_vocab_size(params);
  spec.max_positions = context_of(params);
  spec.sliding_window = params.optional_count({"sliding_window"});
  read_meta_rope(spec, params);
  read_scaling(spec, params);
  note_unknown_keys(spec, json);
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = params.number_or({"norm_eps"}, 1e-5);
  spec.activation = Activation::kSilu;
  name_stack(spec, params, {"", "tok_embeddings", "layers.", "norm"}, kMetaBlock, {});
  // Releases with tied embeddings store one matrix or both.
  spec.lm_head = params.stores("output.weight") ? "output.weight" : "";
  note_unread_tensors(spec, checkpoint);
  return spec;
}

}  // namespace regroup

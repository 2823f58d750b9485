// GGUF metadata and tensor names in, ModelSpec out.
#include "formats/families/gguf_model.h"

#include <algorithm>
#include <cmath>

#include "formats/error.h"
#include "formats/families/config_reader.h"
#include "formats/families/decoder_sizes.h"
#include "formats/families/gguf_graphs.h"
#include "formats/printable.h"

namespace regroup {
namespace {

// llama.cpp's own limit on layers, and one on heads that no model comes near.
constexpr std::int64_t kMaxLayers = 512;
constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// Hyper-parameters under the architecture's own prefix.
class Hyperparameters {
 public:
  Hyperparameters(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& where() const { return metadata_.where(); }

  std::optional<std::int64_t> optional_count(std::string_view name) const {
    const auto value = metadata_.count(key(name));
    if (value && (*value < 1 || *value > kMaxSize)) {
      throw_bad_input("{}: {} is {}, a whole number from 1 to {} is needed", where(), key(name),
                      *value, kMaxSize);
    }
    return value;
  }

  std::int64_t count(std::string_view name) const {
    const auto value = optional_count(name);
    if (!value) {
      throw_bad_input("{}: {} is missing", where(), key(name));
    }
    return *value;
  }

  double number_or(std::string_view name, double absent) const {
    return metadata_.number(key(name)).value_or(absent);
  }

  // One value for all layers, or one each, 0 where there is nothing in a layer.
  std::optional<std::vector<std::int64_t>> per_layer(std::string_view name,
                                                     std::int64_t layers) const {
    const GgufMetadata::Entry* entry = metadata_.find(key(name));
    if (entry == nullptr) {
      return std::nullopt;
    }
    const bool one_each = entry->type == GgufType::kArray;
    if (one_each && metadata_.array(key(name))->size() != static_cast<std::uint64_t>(layers)) {
      throw_bad_input("{}: {} lists {} layers, the model has {}", where(), key(name),
                      metadata_.array(key(name))->size(), layers);
    }
    auto values = metadata_.counts(key(name));
    for (const std::int64_t value : *values) {
      if (value > kMaxSize) {
        throw_bad_input("{}: {} is {}, at most {} allowed", where(), key(name), value, kMaxSize);
      }
    }
    return one_each ? values : std::vector(static_cast<std::size_t>(layers), values->front());
  }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

const GgufGraph& graph_of(const GgufMetadata& metadata) {
  const auto architecture = metadata.text("general.architecture");
  if (!architecture) {
    throw_bad_input("{}: general.architecture is missing", metadata.where());
  }
  const GgufGraph* graph = find_gguf_graph(*architecture);
  if (graph == nullptr) {
    throw_bad_input("{}: the architecture {} is not known", metadata.where(),
                    printable(*architecture));
  }
  return *graph;
}

// What would make another model of the one described.
void refuse_what_is_not_described(const Hyperparameters& parameters) {
  if (parameters.metadata().count(parameters.key("expert_count")).value_or(0) > 0) {
    throw_bad_input("{}: {} is set; mixtures of experts are not known", parameters.where(),
                    parameters.key("expert_count"));
  }
  const auto files = parameters.metadata().count("split.count").value_or(1);
  if (files > 1) {
    throw_bad_input(
        "{}: one of {} files of a split model; merge them first (llama-gguf-split "
        "--merge)",
        parameters.where(), files);
  }
}

void read_heads(ModelSpec& spec, const Hyperparameters& parameters, std::int64_t layers) {
  const auto heads = parameters.per_layer("attention.head_count", layers);
  if (!heads) {
    throw_bad_input("{}: {} is missing", parameters.where(),
                    parameters.key("attention.head_count"));
  }
  spec.query_heads = *std::max_element(heads->begin(), heads->end());
  if (spec.query_heads < 1 || spec.query_heads > kMaxHeads) {
    throw_bad_input("{}: {} is {}, 1 to {} allowed", parameters.where(),
                    parameters.key("attention.head_count"), spec.query_heads, kMaxHeads);
  }
  spec.kv_heads = parameters.per_layer("attention.head_count_kv", layers).value_or(*heads);
  for (std::size_t i = 0; i < heads->size(); ++i) {
    const std::int64_t kv = spec.kv_heads[i];
    const bool none = (*heads)[i] == 0 && kv == 0;
    if (!none && ((*heads)[i] != spec.query_heads || kv == 0 || spec.query_heads % kv != 0)) {
      throw_bad_input(
          "{}: layer {} has {} query and {} kv heads; {} and a divisor of it, or 0 and "
          "0, are needed",
          parameters.where(), i, (*heads)[i], kv, spec.query_heads);
    }
  }
  const auto key_length = parameters.optional_count("attention.key_length");
  const auto value_length = parameters.optional_count("attention.value_length");
  if (!key_length && spec.hidden_size % spec.query_heads != 0) {
    throw_bad_input("{}: embedding length {} is no multiple of {} heads", parameters.where(),
                    spec.hidden_size, spec.query_heads);
  }
  spec.head_dim = key_length.value_or(spec.hidden_size / spec.query_heads);
  if (value_length.value_or(spec.hidden_size / spec.query_heads) != spec.head_dim) {
    throw_bad_input("{}: keys of {} and values of another dimension are not known",
                    parameters.where(), spec.head_dim);
  }
}

// Sets the widths, and gives that of each layer, 0 where it has no MLP.
std::vector<std::int64_t> read_mlp_widths(ModelSpec& spec, const Hyperparameters& parameters) {
  const auto widths = parameters.per_layer("feed_forward_length", spec.layer_count());
  if (!widths || *std::max_element(widths->begin(), widths->end()) < 1) {
    throw_bad_input("{}: {} {}", parameters.where(), parameters.key("feed_forward_length"),
                    widths ? "is 0" : "is missing");
  }
  spec.intermediate_size = *std::max_element(widths->begin(), widths->end());
  for (std::size_t i = 0; i < widths->size(); ++i) {
    const std::int64_t width = (*widths)[i];
    spec.layers[i].intermediate_size = width == spec.intermediate_size ? 0 : width;
  }
  return *widths;
}

// The frequency factors of rope_freqs.weight tell no parameters; regroup records them.
void read_recorded_scaling(ModelSpec& spec, const Hyperparameters& parameters) {
  const auto text = parameters.metadata().text("regroup.rope_scaling");
  if (!text) {
    spec.not_computable = "frequency factors in rope_freqs.weight";
    return;
  }
  const std::string where = parameters.where() + ": regroup.rope_scaling";
  const Json json = parse_json_object(*text, where);
  const ConfigReader given(json, where);
  RopeScaling& scaling = spec.rope.scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor = given.number_or({"factor"}, 1.0);
  scaling.original_positions = given.number_or({"original_max_position_embeddings"}, 0.0);
  scaling.low_frequency_factor = given.number_or({"low_freq_factor"}, 1.0);
  scaling.high_frequency_factor = given.number_or({"high_freq_factor"}, 4.0);
}

void read_rope_scaling(ModelSpec& spec, const Hyperparameters& parameters) {
  const std::string type(
      parameters.metadata().text(parameters.key("rope.scaling.type")).value_or("linear"));
  const double factor =
      parameters.number_or("rope.scaling.factor", parameters.number_or("rope.scale_linear", 0.0));
  const double attention_factor = parameters.number_or("rope.scaling.attn_factor", 1.0);
  RopeScaling& scaling = spec.rope.scaling;
  if (type != "none" && type != "linear" && type != "yarn") {
    spec.not_computable = "rope.scaling.type " + printable(type);
  } else if (type == "yarn" && factor > 0.0) {
    scaling.kind = RopeScaling::Kind::kYarn;
    scaling.factor = factor;
    scaling.original_positions =
        parameters.number_or("rope.scaling.original_context_length",
                             static_cast<double>(spec.max_positions.value_or(0)));
    scaling.attention_factor =
        attention_factor * (factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0);
  } else if (attention_factor != 1.0) {
    spec.not_computable = "rope.scaling.attn_factor without yarn";
  } else if (type == "linear" && factor != 0.0 && factor != 1.0) {
    scaling.kind = RopeScaling::Kind::kLinear;
    scaling.factor = factor;
  }
  if (factor < 0.0 || !std::isfinite(factor)) {
    throw_bad_input("{}: {} is {}, a positive number is needed", parameters.where(),
                    parameters.key("rope.scaling.factor"), factor);
  }
}

void read_rope(ModelSpec& spec, const Hyperparameters& parameters, const GgufGraph& graph,
               bool factors) {
  spec.rope.interleaved = graph.interleaved;
  spec.rope.theta = parameters.number_or("rope.freq_base", 10000.0);
  spec.rope.rotary_dim = parameters.optional_count("rope.dimension_count").value_or(spec.head_dim);
  const bool fits = graph.whole_head_rotates ? spec.rope.rotary_dim == spec.head_dim
                                             : spec.rope.rotary_dim <= spec.head_dim;
  if (!(spec.rope.theta > 0.0) || !fits || spec.rope.rotary_dim % 2 != 0) {
    throw_bad_input("{}: RoPE with base {} on {} of {} dimensions; {} of them is needed",
                    parameters.where(), spec.rope.theta, spec.rope.rotary_dim, spec.head_dim,
                    graph.whole_head_rotates ? "an even number and all" : "an even part");
  }
  read_rope_scaling(spec, parameters);
  if (factors && graph.rope_factors) {
    read_recorded_scaling(spec, parameters);
  }
}

void read_positions(ModelSpec& spec, const Hyperparameters& parameters, const GgufGraph& graph,
                    const GgufParts& parts) {
  spec.positions = graph.positions;
  if (spec.positions == PositionKind::kAlibi && graph.max_alibi_bias) {
    spec.alibi.bias_max = parameters.number_or("attention.max_alibi_bias", 0.0);
    if (!(spec.alibi.bias_max > 0.0)) {
      spec.alibi.bias_max = AlibiSpec().bias_max;
      spec.positions = parts.position_embedding ? PositionKind::kLearned : PositionKind::kNone;
    }
  }
  if (spec.positions == PositionKind::kRope) {
    read_rope(spec, parameters, graph, parts.rope_factors);
  } else if (spec.positions == PositionKind::kLearned) {
    spec.position_embedding = "position_embd.weight";
  }
}

bool there(Presence presence, bool found) {
  return presence == Presence::kAlways || (presence == Presence::kOptional && found);
}

void name_attention(AttentionLayout& attention, const std::string& block, const GgufGraph& graph,
                    const GgufParts& parts) {
  const bool bias = there(graph.qkv_bias, parts.qkv_bias);
  if (there(graph.fused_qkv, parts.fused_qkv)) {
    attention.packing = Packing::kQueryKeyValue;
    attention.q = attention.k = attention.v = linear_at(block + "attn_qkv", bias);
  } else {
    attention.q = linear_at(block + "attn_q", bias);
    attention.k = linear_at(block + "attn_k", bias);
    attention.v = linear_at(block + "attn_v", bias);
  }
  attention.o = linear_at(block + "attn_output", there(graph.o_bias, parts.o_bias));
  if (there(graph.qk_norm_tensors, parts.qk_norm)) {
    attention.q_norms = {norm_at(block + "attn_q_norm", false)};
    attention.k_norms = {norm_at(block + "attn_k_norm", false)};
  }
}

void name_norms(LayerTensors& layer, const std::string& block, const GgufGraph& graph,
                const GgufParts& parts) {
  const bool bias = there(graph.norm_bias, parts.norm_bias);
  if (graph.norm_without_parameters) {
    return;
  }
  if (graph.norm_placement == NormPlacement::kAfterSublayer) {
    layer.attention_norm = norm_at(block + "post_attention_norm", bias);
    layer.mlp_norm = norm_at(block + "post_ffw_norm", bias);
  } else if (graph.second_norm) {
    layer.attention_norm = norm_at(block + (parts.second_norm ? "attn_norm_2" : "attn_norm"), bias);
    layer.mlp_norm = parts.second_norm ? norm_at(block + "attn_norm", bias) : NormTensors{};
  } else {
    layer.attention_norm = norm_at(block + "attn_norm", bias);
    layer.mlp_norm =
        there(graph.mlp_norm, parts.mlp_norm) ? norm_at(block + "ffn_norm", bias) : NormTensors{};
  }
}

void name_mlp(LayerTensors& layer, const std::string& block, const GgufGraph& graph,
              const GgufParts& parts) {
  const bool bias = there(graph.mlp_bias, parts.mlp_bias);
  layer.gate = graph.gated ? linear_at(block + "ffn_gate", bias) : LinearTensors{};
  layer.up = linear_at(block + "ffn_up", bias);
  layer.down = linear_at(block + "ffn_down", bias);
}

void name_tensors(ModelSpec& spec, const GgufGraph& graph, const GgufParts& parts,
                  std::span<const std::int64_t> mlp_widths) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    LayerTensors& layer = spec.layers[i];
    name_norms(layer, block, graph, parts);
    if (spec.kv_heads[i] > 0) {
      name_attention(layer.attention, block, graph, parts);
    } else {
      layer.attention_norm = {};
    }
    if (mlp_widths[i] > 0) {
      name_mlp(layer, block, graph, parts);
    } else {
      layer.mlp_norm = {};
      spec.not_computable = "layers without an MLP";
    }
  }
  spec.token_embedding = "token_embd.weight";
  if (graph.embedding_norm) {
    spec.embedding_norm = norm_at("token_embd_norm", true);
  }
  if (!graph.norm_without_parameters) {
    spec.final_norm = norm_at("output_norm", there(graph.norm_bias, parts.norm_bias));
  }
  spec.lm_head = there(graph.head, parts.head) ? "output.weight" : "";
  spec.lm_head_bias = there(graph.head_bias, parts.head_bias) ? "output.bias" : "";
}

void read_block(ModelSpec& spec, const Hyperparameters& parameters, const GgufGraph& graph,
                const GgufParts& parts) {
  const bool rms = graph.norm == NormKind::kRmsNorm;
  const std::string_view epsilon =
      rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  const auto value = parameters.metadata().number(parameters.key(epsilon));
  if (!value) {
    throw_bad_input("{}: {} is missing", parameters.where(), parameters.key(epsilon));
  }
  spec.norm = graph.norm;
  spec.norm_epsilon = *value;
  spec.norm_placement = graph.norm_placement;
  spec.norm_without_parameters = graph.norm_without_parameters;
  spec.qk_norm = there(graph.qk_norm_tensors, parts.qk_norm) ? graph.qk_norm : QkNorm::kNone;
  spec.activation = graph.activation;
  const double clip = graph.clips ? parameters.number_or("attention.clamp_kqv", 0.0) : 0.0;
  spec.clip_qkv = clip > 0.0 ? std::optional(clip) : std::nullopt;
  if (graph.scaled_embedding) {
    spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  }
  switch (graph.residual) {
    case Residual::kSequential: break;
    case Residual::kParallel: spec.parallel_residual = true; break;
    case Residual::kByMlpNorm: spec.parallel_residual = !parts.mlp_norm; break;
    case Residual::kByKey:
      spec.parallel_residual =
          parameters.metadata().flag(parameters.key("use_parallel_residual")).value_or(true);
      break;
  }
}

// What the vocabulary of ModelSpec has no words for.
void refuse_to_compute(ModelSpec& spec, const Hyperparameters& parameters, const GgufGraph& graph) {
  if (spec.qk_norm == QkNorm::kEachHead ||
      (spec.qk_norm != QkNorm::kNone && graph.fused_qkv == Presence::kAlways)) {
    spec.not_computable = "norms of queries and keys as this architecture keeps them";
  }
  const bool window = graph.norm_placement == NormPlacement::kAfterSublayer &&
                      parameters.optional_count("attention.sliding_window").has_value();
  if (window) {
    spec.not_computable = "a sliding window in some of the layers";
  }
}

std::int64_t vocabulary_in(const Hyperparameters& parameters) {
  if (const auto size = parameters.optional_count("vocab_size")) {
    return *size;
  }
  const auto tokens = parameters.metadata().array("tokenizer.ggml.tokens");
  if (!tokens || tokens->size() < 1 || tokens->size() > static_cast<std::uint64_t>(kMaxSize)) {
    throw_bad_input("{}: neither {} nor tokenizer.ggml.tokens tells the size of the vocabulary",
                    parameters.where(), parameters.key("vocab_size"));
  }
  return static_cast<std::int64_t>(tokens->size());
}

// All but the vocabulary's size.
ModelSpec describe(const GgufMetadata& metadata, const GgufParts& parts) {
  const GgufGraph& graph = graph_of(metadata);
  const Hyperparameters parameters(metadata, graph.architecture);
  refuse_what_is_not_described(parameters);
  const std::int64_t layers = parameters.count("block_count");
  if (layers > kMaxLayers) {
    throw_bad_input("{}: {} is {}, at most {} allowed", metadata.where(),
                    parameters.key("block_count"), layers, kMaxLayers);
  }
  ModelSpec spec;
  spec.family = graph.family;
  spec.architecture = graph.architecture;
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.hidden_size = parameters.count("embedding_length");
  spec.max_positions = parameters.count("context_length");
  spec.kv_heads_key = {parameters.key("attention.head_count_kv")};
  spec.loaders_read_kv_heads = true;
  read_heads(spec, parameters, layers);
  const std::vector<std::int64_t> mlp_widths = read_mlp_widths(spec, parameters);
  read_positions(spec, parameters, graph, parts);
  read_block(spec, parameters, graph, parts);
  name_tensors(spec, graph, parts, mlp_widths);
  refuse_to_compute(spec, parameters, graph);
  return spec;
}

}  // namespace

GgufParts gguf_parts_in(const Checkpoint& checkpoint) {
  const auto has = [&](const std::string& name) { return checkpoint.find(name) != nullptr; };
  const auto in_any_layer = [&](const std::string& name) {
    for (std::int64_t i = 0; i < kMaxLayers; ++i) {
      if (has(fmt::format("blk.{}.{}", i, name))) {
        return true;
      }
    }
    return false;
  };
  GgufParts parts;
  parts.fused_qkv = in_any_layer("attn_qkv.weight");
  parts.qkv_bias = in_any_layer(parts.fused_qkv ? "attn_qkv.bias" : "attn_q.bias");
  parts.o_bias = in_any_layer("attn_output.bias");
  parts.mlp_bias = in_any_layer("ffn_up.bias");
  parts.norm_bias = has("output_norm.bias");
  parts.mlp_norm = in_any_layer("ffn_norm.weight");
  parts.second_norm = in_any_layer("attn_norm_2.weight");
  parts.qk_norm = in_any_layer("attn_q_norm.weight");
  parts.position_embedding = has("position_embd.weight");
  parts.head = has("output.weight");
  parts.head_bias = has("output.bias");
  parts.rope_factors = has("rope_freqs.weight");
  return parts;
}

bool is_known_gguf_model(const GgufMetadata& metadata) {
  const GgufMetadata::Entry* entry = metadata.find("general.architecture");
  if (entry == nullptr || entry->type != GgufType::kString) {
    return false;
  }
  const std::string architecture(*metadata.text("general.architecture"));
  return find_gguf_graph(architecture) != nullptr &&
         metadata.count(architecture + ".expert_count").value_or(0) == 0 &&
         metadata.count("split.count").value_or(1) <= 1;
}

ModelSpec describe_gguf(const GgufMetadata& metadata, const Checkpoint& checkpoint) {
  const GgufParts parts = gguf_parts_in(checkpoint);
  ModelSpec spec = describe(metadata, parts);
  if (spec.layers.size() > checkpoint.tensors().size()) {
    throw_bad_input("{}: block_count is {}, but the file has only {} tensors", metadata.where(),
                    spec.layers.size(), checkpoint.tensors().size());
  }
  const TensorInfo& embedding = checkpoint.at(spec.token_embedding);
  if (embedding.shape.size() != 2 || embedding.shape[0] < 1) {
    throw_bad_input("{}: tensor {} has shape {}, two dimensions are needed", metadata.where(),
                    printable(embedding.name), text_of(embedding.shape));
  }
  spec.vocab_size = embedding.shape[0];
  if (parts.fused_qkv && !parts.qkv_bias && checkpoint.find("blk.0.attn_q.bias") != nullptr) {
    throw_bad_input(
        "{}: fused weights with separate biases (blk.0.attn_qkv.weight, "
        "blk.0.attn_q.bias) are not known",
        metadata.where());
  }
  return spec;
}

ModelSpec describe_gguf(const GgufMetadata& metadata, const GgufParts& parts) {
  ModelSpec spec = describe(metadata, parts);
  spec.vocab_size = vocabulary_in(Hyperparameters(metadata, spec.architecture));
  return spec;
}

}  // namespace regroup

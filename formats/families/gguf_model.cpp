#include "formats/families/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/spec/tensor_names.h"

namespace regroup {

namespace {

constexpr std::int64_t kMaxGgufExperts = 1 << 14;
constexpr std::int64_t kSoftmax = 1;  // expert_gating_func

// Graphs with a width of their own assume feed_forward_length / expert_used_count without the key.
std::int64_t expert_width(const ModelSpec& spec, const GgufHyperparameters& parameters,
                          const GgufExperts& graph) {
  if (!graph.own_width) {
    return spec.intermediate_size;
  }
  if (graph.leading_dense) {
    return parameters.count("expert_feed_forward_length");
  }
  return parameters.optional_count("expert_feed_forward_length")
      .value_or(spec.intermediate_size / spec.routing.per_token);
}

std::int64_t shared_width(const ModelSpec& spec, const GgufHyperparameters& parameters,
                          const GgufExperts& graph) {
  if (graph.shared_gate) {
    return parameters.optional_count("expert_shared_feed_forward_length")
        .value_or(spec.intermediate_size);
  }
  return parameters.count("expert_shared_count", kMaxGgufExperts) * spec.routing.intermediate_size;
}

// Reads how tokens are given to experts, and the width of the expert that all share. Returns the
// number of leading layers without experts.
std::int64_t read_gguf_experts(ModelSpec& spec, const GgufHyperparameters& parameters,
                               const GgufGraph& graph) {
  if (parameters.count_or("expert_count", 0) == 0) {
    return 0;
  }
  ExpertRouting& routing = spec.routing;
  routing.experts = parameters.count("expert_count");
  routing.per_token = parameters.count("expert_used_count");
  if (routing.experts > kMaxGgufExperts || routing.per_token > routing.experts) {
    throw_bad_input("{}: {} of {} experts per token, allowed are at most all of {}",
                    parameters.where(), routing.per_token, routing.experts, kMaxGgufExperts);
  }
  routing.normalised = graph.experts.normalised;
  const double scale = parameters.number_or("expert_weights_scale", 0.0);
  routing.scale = scale == 0.0 ? 1.0 : scale;  // llama.cpp ignores a scale of 0
  routing.intermediate_size = expert_width(spec, parameters, graph.experts);
  if (parameters.count_or("expert_gating_func", kSoftmax) != kSoftmax) {
    spec.not_computable = "experts chosen by another function than softmax";
  }
  if (!graph.experts.shared && (parameters.count_or("expert_shared_count", 0) > 0 ||
                                parameters.count_or("expert_shared_feed_forward_length", 0) > 0)) {
    spec.not_computable = "a shared expert in this architecture";
  }
  const std::int64_t dense =
      graph.experts.leading_dense ? parameters.count_or("leading_dense_block_count", 0) : 0;
  const std::int64_t layers = spec.layer_count();
  if (dense >= layers) {
    throw_bad_input("{}: {} is {}, less than {} layers are allowed", parameters.where(),
                    parameters.key("leading_dense_block_count"), dense, layers);
  }
  for (auto i = static_cast<std::size_t>(dense); graph.experts.shared && i < spec.layers.size();
       ++i) {
    spec.layers[i].intermediate_size = shared_width(spec, parameters, graph.experts);
  }
  return dense;
}

// Describes a GGUF file as a ModelSpec, from its metadata and tensor names.

constexpr std::int64_t kMaxGgufHeads = 1 << 16;  // far more than any model has

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

bool fits_experts(const GgufGraph& graph, std::int64_t experts) {
  return experts == 0 ? graph.experts.presence != Presence::kAlways
                      : graph.experts.presence != Presence::kNever;
}

// Refuses metadata that describe another kind of model.
void refuse_what_is_not_described(const GgufHyperparameters& parameters, const GgufGraph& graph) {
  const auto experts = parameters.count_or("expert_count", 0);
  if (!fits_experts(graph, experts)) {
    throw_bad_input("{}: {} is {}; this architecture is known {} experts only", parameters.where(),
                    parameters.key("expert_count"), experts, experts == 0 ? "with" : "without");
  }
  const auto files = parameters.metadata().count("split.count").value_or(1);
  if (files > 1) {
    throw_bad_input(
        "{}: one of {} files of a split model; merge them first (llama-gguf-split "
        "--merge)",
        parameters.where(), files);
  }
}

void read_heads(ModelSpec& spec, const GgufHyperparameters& parameters, std::int64_t layers) {
  const auto heads = parameters.per_layer("attention.head_count", layers);
  if (!heads) {
    throw_bad_input("{}: {} is missing", parameters.where(),
                    parameters.key("attention.head_count"));
  }
  spec.query_heads = *std::ranges::max_element(*heads);
  if (spec.query_heads < 1 || spec.query_heads > kMaxGgufHeads) {
    throw_bad_input("{}: {} is {}, 1 to {} allowed", parameters.where(),
                    parameters.key("attention.head_count"), spec.query_heads, kMaxGgufHeads);
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

// Sets the MLP widths. Returns the width of each layer, 0 without an MLP.
std::vector<std::int64_t> read_mlp_widths(ModelSpec& spec, const GgufHyperparameters& parameters) {
  const auto widths = parameters.per_layer("feed_forward_length", spec.layer_count());
  if (!widths || *std::ranges::max_element(*widths) < 1) {
    throw_bad_input("{}: {} {}", parameters.where(), parameters.key("feed_forward_length"),
                    widths ? "is 0" : "is missing");
  }
  spec.intermediate_size = *std::ranges::max_element(*widths);
  for (std::size_t i = 0; i < widths->size(); ++i) {
    const std::int64_t width = (*widths)[i];
    spec.layers[i].intermediate_size = width == spec.intermediate_size ? 0 : width;
  }
  return *widths;
}

// llama.cpp ignores a multiplier of 0.
void read_multipliers(ModelSpec& spec, const GgufHyperparameters& parameters,
                      const GgufGraph& graph) {
  const auto given = [&](std::string_view name) {
    const double value = parameters.number_or(name, 0.0);
    return value == 0.0 ? std::nullopt : std::optional(value);
  };
  if (graph.multipliers) {
    spec.embedding_scale = given("embedding_scale").value_or(1.0);
    spec.residual_scale = given("residual_scale").value_or(1.0);
    spec.attention_scale = given("attention.scale");
    spec.output_scale = 1.0 / given("logit_scale").value_or(1.0);
  } else if (graph.logit_scale) {
    spec.output_scale = given("logit_scale").value_or(1.0);
  }
}

void read_block(ModelSpec& spec, const GgufHyperparameters& parameters, const GgufGraph& graph,
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
  read_multipliers(spec, parameters, graph);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].without_rope = graph.lacks_rope(i);
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

// Marks features that a ModelSpec cannot express.
void refuse_to_compute(ModelSpec& spec, const GgufHyperparameters& parameters,
                       const GgufGraph& graph) {
  if (spec.qk_norm == QkNorm::kPerHead ||
      (spec.qk_norm != QkNorm::kNone && graph.fused_qkv == Presence::kAlways)) {
    spec.not_computable = "norms of queries and keys as this architecture keeps them";
  }
  const bool window = graph.norm_placement == NormPlacement::kAfterSublayer &&
                      parameters.optional_count("attention.sliding_window").has_value();
  if (window) {
    spec.not_computable = "a sliding window in some of the layers";
  }
}

std::int64_t vocabulary_in(const GgufHyperparameters& parameters) {
  if (const auto size = parameters.optional_count("vocab_size")) {
    return *size;
  }
  const auto tokens = parameters.metadata().array("tokenizer.ggml.tokens");
  if (!tokens || tokens->size() < 1 || tokens->size() > static_cast<std::uint64_t>(kMaxGgufSize)) {
    throw_bad_input("{}: neither {} nor tokenizer.ggml.tokens tells the size of the vocabulary",
                    parameters.where(), parameters.key("vocab_size"));
  }
  return static_cast<std::int64_t>(tokens->size());
}

// Fills in everything except the size of the vocabulary.
ModelSpec describe(const GgufMetadata& metadata, const GgufParts& parts) {
  const GgufGraph& graph = graph_of(metadata);
  const GgufHyperparameters parameters(metadata, graph.architecture);
  refuse_what_is_not_described(parameters, graph);
  const std::int64_t layers = parameters.count("block_count", kMaxGgufLayers);
  ModelSpec spec;
  spec.family = graph.family;
  spec.architecture = graph.architecture;
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.hidden_size = parameters.count("embedding_length");
  spec.max_positions = parameters.count("context_length");
  spec.kv_heads_key = {parameters.key("attention.head_count_kv")};
  spec.loaders_read_kv_heads = !graph.whole_k_norm;
  read_heads(spec, parameters, layers);
  const std::vector<std::int64_t> mlp_widths = read_mlp_widths(spec, parameters);
  read_gguf_positions(spec, parameters, graph, parts);
  read_block(spec, parameters, graph, parts);
  const std::int64_t dense = read_gguf_experts(spec, parameters, graph);
  name_gguf_tensors(spec, graph, parts, mlp_widths, dense);
  refuse_to_compute(spec, parameters, graph);
  return spec;
}

}  // namespace

bool is_known_gguf_model(const GgufMetadata& metadata) {
  const GgufMetadata::Entry* entry = metadata.find("general.architecture");
  if (entry == nullptr || entry->type != GgufType::kString) {
    return false;
  }
  const std::string architecture(*metadata.text("general.architecture"));
  return find_gguf_graph(architecture) != nullptr &&
         fits_experts(*find_gguf_graph(architecture),
                      metadata.count(architecture + ".expert_count").value_or(0)) &&
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
  note_unread_tensors(spec, checkpoint);
  return spec;
}

ModelSpec describe_gguf(const GgufMetadata& metadata, const GgufParts& parts) {
  ModelSpec spec = describe(metadata, parts);
  spec.vocab_size = vocabulary_in(GgufHyperparameters(metadata, spec.architecture));
  return spec;
}

}  // namespace regroup

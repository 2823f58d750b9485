#include "formats/inspect/model_parts.h"

#include <initializer_list>
#include <utility>

#include "formats/base/name_table.h"

namespace regroup {
namespace {

// A tensor belongs to the first part that names it, since fused queries, keys and values are one
// tensor.
class PartList {
 public:
  explicit PartList(std::size_t layers) : known_(kUsualTensors * layers) {
    parts_.reserve(kUsualTensors * layers);
  }

  void put(ModelPart part, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (!name.empty() && !known_.insert(name, parts_.size())) {
        parts_.emplace_back(name, part);
      }
    }
  }

  void put_linear(ModelPart part, const LinearTensors& linear) {
    put(part, {linear.weight, linear.bias});
  }

  void put_norm(ModelPart part, const NormTensors& norm) { put(part, {norm.weight, norm.bias}); }

  void put_attention(ModelPart part, const AttentionLayout& attention) {
    for (const LinearTensors* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) {
      put_linear(part, *linear);
    }
    for (const auto* norms : {&attention.q_norms, &attention.k_norms}) {
      for (const NormTensors& norm : *norms) {
        put_norm(part, norm);
      }
    }
  }

  void put_layer(const LayerTensors& layer) {
    put_attention(ModelPart::kAttention, layer.attention);
    put_attention(ModelPart::kCross, layer.cross_attention);
    put(ModelPart::kPositions, {layer.relative_bias});
    for (const NormTensors* norm : layer.norms()) {
      put_norm(ModelPart::kNorms, *norm);
    }
    for (const LinearTensors* linear : {&layer.gate, &layer.up, &layer.down}) {
      put_linear(ModelPart::kMlp, *linear);
    }
    put_linear(ModelPart::kMlp, layer.shared_gate);
    put(ModelPart::kExperts, {layer.experts.router});
    for (const auto* names : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) {
      for (const std::string& name : *names) {
        put(ModelPart::kExperts, {name});
      }
    }
  }

  ModelParts take() { return std::move(parts_); }

 private:
  static constexpr std::size_t kUsualTensors = 9;  // per layer

  ModelParts parts_;
  NameTable known_;
};

}  // namespace

std::string_view name_of(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding: return "embedding";
    case ModelPart::kPositions: return "positions";
    case ModelPart::kEncoder: return "encoder";
    case ModelPart::kAttention: return "attention";
    case ModelPart::kCross: return "cross-attention";
    case ModelPart::kMlp: return "mlp";
    case ModelPart::kExperts: return "experts";
    case ModelPart::kNorms: return "norms";
    case ModelPart::kOutput: return "output";
  }
  return "";
}

ModelParts parts_of_layer(const LayerTensors& layer) {
  PartList parts(1);
  parts.put_layer(layer);
  return parts.take();
}

ModelParts parts_of(const ModelSpec& spec) {
  PartList parts(spec.encoder_layers.size() + spec.layers.size());
  parts.put(ModelPart::kEmbedding, {spec.token_embedding, spec.token_type_embedding});
  parts.put(ModelPart::kPositions, {spec.position_embedding});
  parts.put_linear(ModelPart::kEmbedding, spec.project_in);
  parts.put_norm(ModelPart::kNorms, spec.embedding_norm);
  parts.put_linear(ModelPart::kEncoder, spec.spectrum.first);
  parts.put_linear(ModelPart::kEncoder, spec.spectrum.second);
  parts.put(ModelPart::kEncoder, {spec.encoder_position_embedding});
  parts.put_norm(ModelPart::kEncoder, spec.encoder_embedding_norm);
  for (const LayerTensors& layer : spec.encoder_layers) {
    for (const auto& [name, part] : parts_of_layer(layer)) {
      parts.put(ModelPart::kEncoder, {name});
    }
  }
  parts.put_norm(ModelPart::kEncoder, spec.encoder_final_norm);
  for (const LayerTensors& layer : spec.layers) {
    parts.put_layer(layer);
  }
  parts.put_norm(ModelPart::kNorms, spec.final_norm);
  parts.put_linear(ModelPart::kOutput, spec.project_out);
  parts.put_linear(ModelPart::kOutput, spec.head_transform);
  parts.put_norm(ModelPart::kOutput, spec.head_norm);
  parts.put(ModelPart::kOutput, {spec.lm_head, spec.lm_head_bias});
  return parts.take();
}

std::vector<std::string> names_read_per_step(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const auto& [name, part] : parts_of(spec)) {
    // An embedding that is also the output matrix is read completely.
    const bool tied = name == spec.token_embedding && spec.lm_head.empty();
    if (part != ModelPart::kEncoder && part != ModelPart::kPositions &&
        (part != ModelPart::kEmbedding || tied || name == spec.project_in.weight)) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::uint64_t bytes_of_experts(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const LayerTensors& layer : spec.layers) {
    for (const auto& [name, part] : parts_of_layer(layer)) {
      const bool counts = part == ModelPart::kExperts && name != layer.experts.router;
      const TensorInfo* tensor = counts ? checkpoint.find(name) : nullptr;
      bytes += tensor != nullptr ? tensor->bytes() : 0;
    }
  }
  return bytes;
}

std::uint64_t bytes_read_per_step(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const std::string& name : names_read_per_step(spec)) {
    const TensorInfo* tensor = checkpoint.find(name);
    bytes += tensor != nullptr ? tensor->bytes() : 0;
  }
  const double idle =
      static_cast<double>(bytes_of_experts(spec, checkpoint)) * (1.0 - spec.share_of_experts(1));
  return bytes - static_cast<std::uint64_t>(idle);
}

}  // namespace regroup

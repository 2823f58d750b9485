#include "formats/model_parts.h"

#include <initializer_list>

namespace regroup {
namespace {

void put(ModelParts& parts, ModelPart part, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (!name.empty()) {
      parts.emplace(name, part);
    }
  }
}

void put_linear(ModelParts& parts, ModelPart part, const LinearTensors& linear) {
  put(parts, part, {linear.weight, linear.bias});
}

void put_norm(ModelParts& parts, ModelPart part, const NormTensors& norm) {
  put(parts, part, {norm.weight, norm.bias});
}

void put_attention(ModelParts& parts, ModelPart part, const AttentionLayout& attention) {
  for (const LinearTensors* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) {
    put_linear(parts, part, *linear);
  }
  for (const auto* norms : {&attention.q_norms, &attention.k_norms}) {
    for (const NormTensors& norm : *norms) {
      put_norm(parts, part, norm);
    }
  }
}

void put_layer(ModelParts& parts, const LayerTensors& layer) {
  put_attention(parts, ModelPart::kAttention, layer.attention);
  put_attention(parts, ModelPart::kCross, layer.cross_attention);
  put(parts, ModelPart::kPositions, {layer.relative_bias});
  for (const NormTensors* norm : {&layer.attention_norm, &layer.cross_norm, &layer.mlp_norm}) {
    put_norm(parts, ModelPart::kNorms, *norm);
  }
  for (const LinearTensors* linear : {&layer.gate, &layer.up, &layer.down}) {
    put_linear(parts, ModelPart::kMlp, *linear);
  }
}

}  // namespace

std::string_view name_of(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding: return "embedding";
    case ModelPart::kPositions: return "positions";
    case ModelPart::kEncoder: return "encoder";
    case ModelPart::kAttention: return "attention";
    case ModelPart::kCross: return "cross-attention";
    case ModelPart::kMlp: return "mlp";
    case ModelPart::kNorms: return "norms";
    case ModelPart::kOutput: return "output";
  }
  return "";
}

ModelParts parts_of_layer(const LayerTensors& layer) {
  ModelParts parts;
  put_layer(parts, layer);
  return parts;
}

ModelParts parts_of(const ModelSpec& spec) {
  ModelParts parts;
  put(parts, ModelPart::kEmbedding, {spec.token_embedding, spec.token_type_embedding});
  put(parts, ModelPart::kPositions, {spec.position_embedding});
  put_linear(parts, ModelPart::kEmbedding, spec.project_in);
  put_norm(parts, ModelPart::kNorms, spec.embedding_norm);
  for (const LayerTensors& layer : spec.encoder_layers) {
    for (const auto& [name, part] : parts_of_layer(layer)) {
      parts.emplace(name, ModelPart::kEncoder);
    }
  }
  put_norm(parts, ModelPart::kEncoder, spec.encoder_final_norm);
  for (const LayerTensors& layer : spec.layers) {
    put_layer(parts, layer);
  }
  put_norm(parts, ModelPart::kNorms, spec.final_norm);
  put_linear(parts, ModelPart::kOutput, spec.project_out);
  put_linear(parts, ModelPart::kOutput, spec.head_transform);
  put_norm(parts, ModelPart::kOutput, spec.head_norm);
  put(parts, ModelPart::kOutput, {spec.lm_head, spec.lm_head_bias});
  return parts;
}

std::vector<std::string> names_read_per_step(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const auto& [name, part] : parts_of(spec)) {
    // Tied to the output the embedding is read whole.
    const bool tied = name == spec.token_embedding && spec.lm_head.empty();
    if (part != ModelPart::kEncoder && part != ModelPart::kPositions &&
        (part != ModelPart::kEmbedding || tied || name == spec.project_in.weight)) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::uint64_t bytes_read_per_step(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const std::string& name : names_read_per_step(spec)) {
    const TensorInfo* tensor = checkpoint.find(name);
    bytes += tensor != nullptr ? tensor->bytes() : 0;
  }
  return bytes;
}

}  // namespace regroup

#include "converter/pooling/inputs/input_moments.h"

#include <string>

#include "converter/heads/move_heads.h"

namespace regroup {
namespace {

// The norm whose output these inputs are. It is absent if there is none.
NormTensors norm_before(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                        InputSide side) {
  if (role == AttentionRole::kCross && side == InputSide::kKeysAndValues) {
    return spec.norm_placement == NormPlacement::kAfterResidual
               ? spec.encoder_layers.back().mlp_norm
               : spec.encoder_final_norm;
  }
  const std::vector<LayerTensors>& layers = spec.stack(role);
  switch (spec.norm_placement) {
    case NormPlacement::kBefore:
    case NormPlacement::kAround: {
      const NormTensors& own =
          role == AttentionRole::kCross ? layers[layer].cross_norm : layers[layer].attention_norm;
      return own.present() || layer > 0 ? own : spec.embedding_norm;  // ModernBERT's first layer
    }
    case NormPlacement::kAfterResidual:
      if (role == AttentionRole::kCross) {
        return layers[layer].attention_norm;
      }
      if (layer > 0) {
        return layers[layer - 1].mlp_norm;
      }
      return role == AttentionRole::kEncoder ? spec.encoder_embedding_norm : spec.embedding_norm;
    case NormPlacement::kAfterSublayer: break;
  }
  return {};
}

std::vector<double> norm_values(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo& tensor = checkpoint.at(name);
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  const HeadBlocks all =
      head_blocks({tensor.elements()}, false, std::vector<std::int64_t>{0}, tensor.elements());
  move_heads(copy_of_heads(name, all, all), tensor.dtype, bytes, DType::kF64,
             std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

InputMoments moments_after_norm(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                InputSide side, std::int64_t width, const Checkpoint& checkpoint) {
  const NormTensors norm = norm_before(spec, role, layer, side);
  const auto size = static_cast<std::size_t>(width);
  InputMoments moments{std::vector<double>(size, 0.0), std::vector<double>(size, 1.0), {}};
  if (norm.present() && checkpoint.at(norm.weight).elements() == width) {
    moments.variance = norm_values(checkpoint, norm.weight);
    for (double& weight : moments.variance) {
      weight = (weight + spec.norm_weight_offset) * (weight + spec.norm_weight_offset);
    }
    if (!norm.bias.empty()) {
      moments.mean = norm_values(checkpoint, norm.bias);
    }
  }
  return moments;
}

}  // namespace regroup

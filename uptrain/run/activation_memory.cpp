#include <algorithm>

#include "uptrain/ops/attention.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/run/training_memory.h"

namespace regroup {

namespace {

// Counts the intermediate results that are kept for the backward pass, in elements per token. That
// depends on the device's kernels.
struct Kept {
  const ModelSpec& spec;
  c10::Device device;
  Precision precision;

  bool fuses(FusedKernel kernel) const { return has_fused_kernel(kernel, device); }

  // A norm's input and output. RMSNorm by several operators keeps more.
  std::int64_t by_norm() const {
    const bool one = spec.norm == NormKind::kLayerNorm || fuses(FusedKernel::kRmsNorm);
    return (one ? 2 : 3) * spec.hidden_size;
  }

  // The same of all norms of an attention or an MLP.
  std::int64_t by_norms() const {
    return by_norm() + (spec.norm_placement == NormPlacement::kAround ? spec.hidden_size : 0);
  }

  // The heads of an attention and its output. Before the rotation, too, if that keeps its input, or
  // if values are a part of the same tensor.
  std::int64_t by_heads(std::int64_t kv_heads, Packing packing) const {
    const std::int64_t projected = spec.query_heads + 2 * kv_heads;
    // Off the CPU, grouped heads are repeated in fp32: see attend().
    const bool repeats = precision == Precision::kFp32 && !device.is_cpu();
    const std::int64_t copies = repeats ? 2 * (spec.query_heads - kv_heads) : 0;
    if (spec.positions == PositionKind::kAlibi && !device.is_cpu()) {
      return (projected + spec.query_heads + copies) * (spec.head_dim + Alibi::kMoreDimensions) +
             spec.query_heads * spec.head_dim;
    }
    const bool once = fuses(FusedKernel::kRotation) && spec.qk_norm == QkNorm::kNone &&
                      packing == Packing::kSeparate;
    return ((once ? 1 : 2) * projected + spec.query_heads + copies) * spec.head_dim;
  }

  // The factors of an MLP's product, and the product.
  std::int64_t by_activation(const LayerTensors& layer) const {
    const bool fused =
        fuses(FusedKernel::kGatedActivation) && !layer.fused_gate() &&
        (spec.activation == Activation::kSilu || spec.activation == Activation::kGeluTanh);
    return layer.gate.present() ? (fused ? 3 : 4)
                                : (spec.activation == Activation::kReluSquared ? 3 : 2);
  }

  // What an attention keeps: the residual stream and the norms around it, the heads and its output.
  std::int64_t by_attention(AttentionRole role, std::size_t layer) const {
    const AttentionLayout& attention = spec.attention(role, layer);
    if (!attention.present()) {
      return 0;
    }
    const std::int64_t around = role == AttentionRole::kCross ? 2 * spec.hidden_size : by_norms();
    return around + by_heads(spec.kv_heads_of(role)[layer], attention.packing);
  }

  // Experts: the scores and probabilities in fp32, and for each expert of the token its input, its
  // intermediate results, and its output before and after it is ordered and weighted.
  std::int64_t by_experts(const LayerTensors& layer) const {
    const std::int64_t each = spec.hidden_size + spec.routing.intermediate_size;
    return layer.experts.present() ? 4 * (spec.routing.experts + spec.routing.per_token * each) : 0;
  }

  // An MLP: the residual stream, the norm, and its intermediate results.
  std::int64_t by_mlp(const LayerTensors& layer) const {
    if (!layer.up.present()) {
      return layer.experts.present() ? 3 * spec.hidden_size : 0;
    }
    return by_norms() + by_activation(layer) * spec.width_of(layer);
  }

  std::int64_t by_block(AttentionRole role, std::size_t layer) const {
    const LayerTensors& tensors = spec.stack(role)[layer];
    const bool cross = role == AttentionRole::kSelf && spec.has_encoder();
    return by_attention(role, layer) + by_mlp(tensors) + by_experts(tensors) +
           (cross ? by_attention(AttentionRole::kCross, layer) : 0);
  }

  // A stack, its last norm included. With activation checkpointing, each block keeps its input, and
  // one block at a time keeps the rest.
  double by_stack(AttentionRole role, bool recomputing) const {
    std::int64_t sum = by_norm();
    std::int64_t largest = 0;
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      const std::int64_t block = by_block(role, layer);
      sum += recomputing ? spec.hidden_size : block;
      largest = std::max(largest, block);
    }
    return static_cast<double>(recomputing ? sum + largest : sum);
  }

  // The gradients that an MLP's backward pass holds: of the two factors of its product and of the
  // product, of its input, its output and the residual stream. That of a few experts holds fewer.
  std::int64_t gradients_in_mlp(AttentionRole role, std::size_t layer) const {
    return 3 * spec.width_of(spec.stack(role)[layer]) + 3 * spec.hidden_size;
  }
};

// Elements of a token's keys and values.
double keys_and_values(const ModelSpec& spec, std::size_t layer) {
  return spec.layers[layer].attention.present()
             ? static_cast<double>(2 * spec.kv_heads[layer] * spec.head_dim)
             : 0.0;
}

// Tokens of the sequences of a batch that ranks share, of the part of the last rank and those
// before it.
double joined_tokens(const PassMemory& passes) {
  return passes.settings.sequence_ranks == 1
             ? 0.0
             : static_cast<double>(passes.settings.batch * passes.settings.sequence_ranks) *
                   passes.tokens.decoder;
}

Kept kept_by(const PassMemory& passes) {
  return {passes.spec, passes.settings.device, passes.settings.precision};
}

// Bytes of the gradients of joined keys and values, in their type and, on the way to their ranks,
// in fp32, as far as they are more than what the block's MLP has given up by then.
double joined_gradients(const PassMemory& passes) {
  const double width = bytes_per_element(passes.settings.precision);
  double largest = 0.0;
  for (std::size_t layer = 0; layer < passes.spec.layers.size(); ++layer) {
    const auto elements = static_cast<double>(kept_by(passes).by_mlp(passes.spec.layers[layer]));
    const double mlp =
        elements * width * passes.tokens.decoder * static_cast<double>(passes.settings.batch);
    largest = std::max(
        largest,
        joined_tokens(passes) * keys_and_values(passes.spec, layer) * (2 * width + 4) - mlp);
  }
  return largest;
}

// What is counted of a block.
using Count = std::int64_t (Kept::*)(AttentionRole role, std::size_t layer) const;

double largest_of(const Kept& kept, AttentionRole role, Count count) {
  std::int64_t largest = 0;
  for (std::size_t layer = 0; layer < kept.spec.stack(role).size(); ++layer) {
    largest = std::max(largest, (kept.*count)(role, layer));
  }
  return static_cast<double>(largest);
}

double bytes_of_largest(const PassMemory& passes, double element, Count count) {
  const Kept kept = kept_by(passes);
  return static_cast<double>(passes.settings.batch) * element *
         std::max(passes.tokens.decoder * largest_of(kept, AttentionRole::kSelf, count),
                  passes.tokens.encoder * largest_of(kept, AttentionRole::kEncoder, count));
}

}  // namespace

double bytes_per_element(Precision precision) { return precision == Precision::kBf16 ? 2 : 4; }

double PassMemory::kept() const {
  const Kept each = kept_by(*this);
  double elements = tokens.decoder * each.by_stack(AttentionRole::kSelf, settings.recomputing);
  if (spec.has_encoder()) {
    elements += tokens.encoder * each.by_stack(AttentionRole::kEncoder, settings.recomputing);
  }
  return static_cast<double>(settings.batch) * elements * bytes_per_element(settings.precision);
}

double PassMemory::largest_block(double element) const {
  return bytes_of_largest(*this, element, &Kept::by_block);
}

double PassMemory::backward() const {
  return std::max(
      bytes_of_largest(*this, bytes_per_element(settings.precision), &Kept::gradients_in_mlp),
      joined_gradients(*this));
}

double PassMemory::shared_sequences() const {
  double all = 0.0;
  double largest = 0.0;
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const double elements = keys_and_values(spec, layer);
    all += elements;
    largest = std::max(largest, elements);
  }
  return joined_tokens(*this) * (settings.recomputing ? largest : all) *
         bytes_per_element(settings.precision);
}

double PassMemory::window_masks(std::int64_t sequence_length) const {
  if (!spec.sliding_window || sequence_length <= *spec.sliding_window) {
    return 0.0;
  }
  const SlidingWindow window(*spec.sliding_window, {}, spec.causal);
  const std::int64_t fewest = *std::min_element(spec.kv_heads.begin(), spec.kv_heads.end());
  const std::int64_t copies = settings.device.is_cpu() ? 1 : spec.query_heads / fewest;
  const auto numbers = static_cast<double>(copies * window.block() * window.keys());
  return 2 * numbers * bytes_per_element(settings.precision);
}

double PassMemory::attention_outputs() const {
  double outputs = 0.0;
  for (const AttentionRole role : spec.roles()) {
    const double length = role == AttentionRole::kEncoder ? tokens.encoder : tokens.decoder;
    outputs += length * static_cast<double>(attending_layers(spec, role));
  }
  return static_cast<double>(settings.batch * spec.hidden_size) * outputs *
         (2 * bytes_per_element(settings.precision) + 4);
}

}  // namespace regroup

#include "uptrain/run/activation_memory.h"

#include <algorithm>

#include "uptrain/ops/attention.h"

namespace regroup {
namespace {

// The elements per token that an attention keeps for its backward pass: the residual stream and the
// norms around it, the heads before and after rotation, and its output.
double kept_by_attention(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  if (!spec.attention(role, layer).present()) {
    return 0.0;
  }
  const std::int64_t around = role == AttentionRole::kCross ? 2 : 3;
  const std::int64_t heads =
      2 * (spec.query_heads + 2 * spec.kv_heads_of(role)[layer]) + spec.query_heads;
  return static_cast<double>(around * spec.hidden_size + heads * spec.head_dim);
}

// The same for experts: the scores and probabilities in fp32, and for each expert of the token its
// input, its intermediate results, and its output before and after it is ordered and weighted.
double kept_by_experts(const ModelSpec& spec, const LayerTensors& layer) {
  if (!layer.experts.present()) {
    return 0.0;
  }
  const ExpertRouting& routing = spec.routing;
  return static_cast<double>(4 * routing.experts +
                             routing.per_token *
                                 (4 * spec.hidden_size + 4 * routing.intermediate_size));
}

// The same for an MLP: the residual stream, the norm, and its intermediate results.
double kept_by_mlp(const ModelSpec& spec, const LayerTensors& layer) {
  if (!layer.up.present()) {
    return layer.experts.present() ? static_cast<double>(3 * spec.hidden_size) : 0.0;
  }
  const std::int64_t width =
      layer.intermediate_size > 0 ? layer.intermediate_size : spec.intermediate_size;
  return static_cast<double>(3 * spec.hidden_size + 4 * width);
}

double kept_by_block(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  const bool cross = role == AttentionRole::kSelf && spec.has_encoder();
  return kept_by_attention(spec, role, layer) + kept_by_mlp(spec, spec.stack(role)[layer]) +
         kept_by_experts(spec, spec.stack(role)[layer]) +
         (cross ? kept_by_attention(spec, AttentionRole::kCross, layer) : 0.0);
}

double largest_block(const ModelSpec& spec, AttentionRole role) {
  double largest = 0.0;
  for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
    largest = std::max(largest, kept_by_block(spec, role, layer));
  }
  return largest;
}

// The elements per token that a stack keeps. With activation checkpointing, each block keeps its
// input, and one block at a time keeps the rest.
double kept_by_stack(const ModelSpec& spec, AttentionRole role, bool recomputing) {
  double sum = 0.0;
  double largest = 0.0;
  for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
    const double kept = kept_by_block(spec, role, layer);
    sum += recomputing ? static_cast<double>(spec.hidden_size) : kept;
    largest = std::max(largest, kept);
  }
  return recomputing ? sum + largest : sum;
}

}  // namespace

double bytes_per_element(Precision precision) { return precision == Precision::kBf16 ? 2 : 4; }

double activation_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                        const StackTokens& tokens) {
  double elements =
      tokens.decoder * kept_by_stack(spec, AttentionRole::kSelf, settings.recomputing);
  if (spec.has_encoder()) {
    elements += tokens.encoder * kept_by_stack(spec, AttentionRole::kEncoder, settings.recomputing);
  }
  return static_cast<double>(settings.batch) * elements * bytes_per_element(settings.precision);
}

double largest_block_bytes(const UptrainSettings& settings, const ModelSpec& spec, double element,
                           const StackTokens& tokens) {
  return static_cast<double>(settings.batch) * element *
         std::max(tokens.decoder * largest_block(spec, AttentionRole::kSelf),
                  tokens.encoder * largest_block(spec, AttentionRole::kEncoder));
}

double shared_sequence_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                             std::int64_t sequence_length) {
  if (settings.sequence_ranks == 1) {
    return 0.0;
  }
  double all = 0.0;
  double largest = 0.0;
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (spec.layers[layer].attention.present()) {
      const auto elements = static_cast<double>(2 * spec.kv_heads[layer] * spec.head_dim);
      all += elements;
      largest = std::max(largest, elements);
    }
  }
  const double width = bytes_per_element(settings.precision);
  return static_cast<double>(settings.batch * sequence_length) *
         ((settings.recomputing ? largest : all) * width + largest * (2 * width + 4));
}

double window_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                    std::int64_t sequence_length) {
  if (!spec.sliding_window || sequence_length <= *spec.sliding_window) {
    return 0.0;
  }
  const SlidingWindow window(*spec.sliding_window, {}, spec.causal);
  const std::int64_t fewest = *std::min_element(spec.kv_heads.begin(), spec.kv_heads.end());
  const std::int64_t copies = settings.device.is_cpu() ? 1 : spec.query_heads / fewest;
  const auto numbers = static_cast<double>(copies * window.block() * window.keys());
  return 2 * numbers * bytes_per_element(settings.precision);
}

double attention_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                       const StackTokens& tokens) {
  double outputs = 0.0;
  for (const AttentionRole role : spec.roles()) {
    const double length = role == AttentionRole::kEncoder ? tokens.encoder : tokens.decoder;
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      outputs += spec.attention(role, layer).present() ? length : 0.0;
    }
  }
  return static_cast<double>(settings.batch * spec.hidden_size) * outputs *
         (2 * bytes_per_element(settings.precision) + 4);
}

}  // namespace regroup

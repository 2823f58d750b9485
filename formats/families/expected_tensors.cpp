// Lists the tensors and shapes that a ModelSpec implies, and checks that a checkpoint has them.
#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {
namespace {

void add_linear(std::vector<ExpectedTensor>& tensors, const LinearTensors& linear, std::int64_t out,
                std::int64_t in) {
  if (!linear.present() || contains(tensors, linear.weight, &ExpectedTensor::name)) {
    return;  // in fused packings q, k and v name the same tensor
  }
  tensors.push_back({linear.weight, linear.input_major ? Shape{in, out} : Shape{out, in}});
  if (!linear.bias.empty()) {
    tensors.push_back({linear.bias, {out}});
  }
}

void add_norm(std::vector<ExpectedTensor>& tensors, const NormTensors& norm, std::int64_t width) {
  for (const std::string& name : {norm.weight, norm.bias}) {
    if (!name.empty()) {
      tensors.push_back({name, {width}});
    }
  }
}

void add_attention(std::vector<ExpectedTensor>& tensors, const ModelSpec& spec, AttentionRole role,
                   std::size_t i) {
  const AttentionLayout& attention = spec.attention(role, i);
  if (!attention.present()) {
    return;
  }
  const HeadFeatures features =
      head_features(attention.packing, spec.query_heads, spec.kv_heads_of(role)[i], spec.head_dim);
  std::vector<ExpectedTensor> layer;
  add_linear(layer, attention.q, features.q_total, spec.hidden_size);
  add_linear(layer, attention.k, features.k_total, spec.hidden_size);
  add_linear(layer, attention.v, features.v_total, spec.hidden_size);
  add_linear(layer, attention.o, spec.hidden_size, spec.query_heads * spec.head_dim);
  const bool whole = spec.qk_norm == QkNorm::kProjection;
  for (const NormTensors& norm : attention.q_norms) {
    add_norm(layer, norm, whole ? features.q_total : spec.head_dim);
  }
  for (const NormTensors& norm : attention.k_norms) {
    add_norm(layer, norm, whole ? features.k_total : spec.head_dim);
  }
  append(tensors, layer);
}

void add_mlp(std::vector<ExpectedTensor>& tensors, const ModelSpec& spec,
             const LayerTensors& layer) {
  const std::int64_t width = spec.width_of(layer);
  std::vector<ExpectedTensor> mlp;
  add_linear(mlp, layer.gate, layer.fused_gate() ? 2 * width : width, spec.hidden_size);
  add_linear(mlp, layer.up, width, spec.hidden_size);
  add_linear(mlp, layer.down, spec.hidden_size, width);
  append(tensors, mlp);
}

void add_experts(std::vector<ExpectedTensor>& tensors, const ModelSpec& spec,
                 const LayerTensors& layer) {
  const ExpertTensors& experts = layer.experts;
  const ExpertRouting& routing = spec.routing;
  if (!experts.present()) {
    return;
  }
  const std::int64_t width = routing.intermediate_size;
  const std::int64_t hidden = spec.hidden_size;
  const auto add = [&](const std::vector<std::string>& names, std::int64_t out, std::int64_t in) {
    for (const std::string& name : names) {
      tensors.push_back({name, experts.stacked ? Shape{routing.experts, out, in} : Shape{out, in}});
    }
  };
  tensors.push_back({experts.router, {routing.experts, hidden}});
  add(experts.gate, experts.fused_gate() ? 2 * width : width, hidden);
  if (!experts.fused_gate()) {
    add(experts.up, width, hidden);
  }
  add(experts.down, hidden, width);
  if (layer.shared_gate_is_vector) {
    tensors.push_back({layer.shared_gate.weight, {hidden}});
  } else {
    add_linear(tensors, layer.shared_gate, 1, hidden);
  }
}

// `self` is the role of the stack's self-attention: kSelf or kEncoder.
void add_stack(std::vector<ExpectedTensor>& tensors, const ModelSpec& spec, AttentionRole self) {
  for (std::size_t i = 0; i < spec.stack(self).size(); ++i) {
    const LayerTensors& layer = spec.stack(self)[i];
    add_norm(tensors, layer.attention_norm, spec.hidden_size);
    add_attention(tensors, spec, self, i);
    if (!layer.relative_bias.empty()) {
      tensors.push_back({layer.relative_bias, {spec.relative_bias.buckets, spec.query_heads}});
    }
    add_norm(tensors, layer.attention_output_norm, spec.hidden_size);
    if (self == AttentionRole::kSelf && spec.has_encoder()) {
      add_norm(tensors, layer.cross_norm, spec.hidden_size);
      add_attention(tensors, spec, AttentionRole::kCross, i);
    }
    add_norm(tensors, layer.mlp_norm, spec.hidden_size);
    add_mlp(tensors, spec, layer);
    add_experts(tensors, spec, layer);
    add_norm(tensors, layer.mlp_output_norm, spec.hidden_size);
  }
}

// A convolution of width 3.
void add_convolution(std::vector<ExpectedTensor>& tensors, const LinearTensors& convolution,
                     std::int64_t out, std::int64_t in) {
  tensors.push_back({convolution.weight, {out, in, 3}});
  tensors.push_back({convolution.bias, {out}});
}

void add_encoder_input(std::vector<ExpectedTensor>& tensors, const ModelSpec& spec) {
  if (spec.spectrum.present()) {
    add_convolution(tensors, spec.spectrum.first, spec.hidden_size, spec.spectrum.bands);
    add_convolution(tensors, spec.spectrum.second, spec.hidden_size, spec.hidden_size);
  }
  if (!spec.encoder_position_embedding.empty()) {
    const std::int64_t rows = spec.spectrum.present()
                                  ? spec.spectrum.positions
                                  : spec.max_positions.value() + spec.position_offset;
    tensors.push_back({spec.encoder_position_embedding, {rows, spec.hidden_size}});
  }
  add_norm(tensors, spec.encoder_embedding_norm, spec.hidden_size);
}

void add_embeddings(std::vector<ExpectedTensor>& tensors, const ModelSpec& spec) {
  tensors.push_back({spec.token_embedding, {spec.vocab_size, spec.embedding_width()}});
  const std::int64_t width = spec.projected_last ? spec.embedding_width() : spec.hidden_size;
  if (!spec.position_embedding.empty()) {
    tensors.push_back(
        {spec.position_embedding, {spec.max_positions.value() + spec.position_offset, width}});
  }
  if (!spec.token_type_embedding.empty()) {
    tensors.push_back({spec.token_type_embedding, {spec.token_types, width}});
  }
  add_linear(tensors, spec.project_in, spec.hidden_size, spec.embedding_width());
  add_norm(tensors, spec.embedding_norm, width);
  add_encoder_input(tensors, spec);
}

// Where the model cannot be computed, a setting may replace tensors by others: what is missing is
// then no fault.
std::vector<std::string> faults_in(std::span<const ExpectedTensor> expected,
                                   const Checkpoint& checkpoint, bool may_lack) {
  std::vector<std::string> faults;
  for (const ExpectedTensor& tensor : expected) {
    const TensorInfo* found = checkpoint.find(tensor.name);
    if (found == nullptr && !may_lack) {
      faults.push_back(fmt::format("{} is missing", printable(tensor.name)));
    } else if (found != nullptr && found->shape != tensor.shape) {
      faults.push_back(fmt::format("{} is {}, the config says {}", printable(tensor.name),
                                   text_of(found->shape), text_of(tensor.shape)));
    }
  }
  return faults;
}

void throw_faults(const std::vector<std::string>& faults, const Checkpoint& checkpoint) {
  constexpr std::size_t kShown = 4;
  if (!faults.empty()) {
    const bool missing = faults.front().ends_with(" is missing");
    throw_bad_input("{}: tensors do not fit the config: {}{}", place_of(checkpoint),
                    first_of(faults, kShown), missing ? layers_found_in(checkpoint) : "");
  }
}

// T5EncoderModel, BartForCausalLM and their like have one of two stacks.
void check_has_both_stacks(const ModelSpec& spec, const Checkpoint& checkpoint) {
  const auto has = [&](AttentionRole role) {
    return std::ranges::any_of(spec.stack(role), [&](const LayerTensors& layer) {
      return checkpoint.find(layer.attention.q.weight) != nullptr;
    });
  };
  if (!spec.has_encoder() || has(AttentionRole::kEncoder) == has(AttentionRole::kSelf)) {
    return;
  }
  throw_bad_input("{}: has only the {} of a {}: take the whole model, with encoder and decoder",
                  place_of(checkpoint), has(AttentionRole::kEncoder) ? "encoder" : "decoder",
                  printable(spec.architecture));
}

void compare_kv_heads(const ModelSpec& spec, const Checkpoint& checkpoint, AttentionRole role,
                      std::vector<std::string>& faults) {
  const std::vector<std::int64_t> stored = kv_heads_from_shapes(spec, checkpoint, role);
  const std::vector<std::int64_t>& said = spec.kv_heads_of(role);
  const std::string of_role = spec.has_encoder() ? fmt::format("{} ", name_of(role)) : "";
  const auto add = [&](const std::string& where, std::size_t layer) {
    faults.push_back(fmt::format("{}{}: the config says {} kv heads, the tensors hold {}", of_role,
                                 where, said[layer], stored[layer]));
  };
  if (stored.size() > 1 && all_equal(stored) && all_equal(said) && stored != said) {
    return add("every layer", 0);
  }
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (stored[i] != said[i]) {
      add(fmt::format("layer {}", i), i);
    }
  }
}

// The shapes that do not fit, or the kv heads if nothing else is wrong with them.
std::vector<std::string> attention_faults(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::vector<std::string> faults =
      faults_in(expected_attention_tensors(spec), checkpoint, /*may_lack=*/false);
  if (faults.empty()) {
    return faults;
  }
  try {
    const auto stored = expected_attention_tensors(with_stored_heads(spec, checkpoint));
    return faults_in(stored, checkpoint, false).empty() ? kv_head_faults(spec, checkpoint) : faults;
  } catch (const Error&) {  // the shapes give no number of heads
    return faults;
  }
}

}  // namespace

std::vector<std::string> kv_head_faults(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::vector<std::string> faults;
  for (const AttentionRole role : spec.roles()) {
    compare_kv_heads(spec, checkpoint, role, faults);
  }
  return faults;
}

std::vector<ExpectedTensor> expected_attention_tensors(const ModelSpec& spec) {
  std::vector<ExpectedTensor> tensors;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      add_attention(tensors, spec, role, i);
    }
  }
  return tensors;
}

std::vector<ExpectedTensor> expected_tensors(const ModelSpec& spec) {
  if (spec.attention_only()) {
    return expected_attention_tensors(spec);
  }
  const std::int64_t width = spec.embedding_width();
  std::vector<ExpectedTensor> tensors;
  add_embeddings(tensors, spec);
  if (spec.has_encoder()) {
    add_stack(tensors, spec, AttentionRole::kEncoder);
    add_norm(tensors, spec.encoder_final_norm, spec.hidden_size);
  }
  add_stack(tensors, spec, AttentionRole::kSelf);
  add_norm(tensors, spec.final_norm, spec.hidden_size);
  add_linear(tensors, spec.project_out, width, spec.hidden_size);
  const std::int64_t transformed = spec.projected_last ? width : spec.hidden_size;
  add_linear(tensors, spec.head_transform, transformed, spec.hidden_size);
  add_norm(tensors, spec.head_norm, transformed);
  if (!spec.lm_head.empty()) {
    tensors.push_back({spec.lm_head, {spec.vocab_size, width}});
  }
  if (!spec.lm_head_bias.empty()) {
    tensors.push_back({spec.lm_head_bias, spec.lm_head_bias_is_row ? Shape{1, spec.vocab_size}
                                                                   : Shape{spec.vocab_size}});
  }
  return tensors;
}

std::vector<std::string> tensor_faults(const ModelSpec& spec, const Checkpoint& checkpoint) {
  const bool may_lack = !spec.not_computable.empty() && !spec.loaders_compute;
  return faults_in(expected_tensors(spec), checkpoint, may_lack);
}

void check_tensors(const ModelSpec& spec, const Checkpoint& checkpoint) {
  check_attention_shapes(spec, checkpoint);
  throw_faults(tensor_faults(spec, checkpoint), checkpoint);
}

void check_attention_shapes(const ModelSpec& spec, const Checkpoint& checkpoint) {
  check_has_both_stacks(spec, checkpoint);
  throw_faults(attention_faults(spec, checkpoint), checkpoint);
}

void check_all_shapes(const ModelSpec& spec, const Checkpoint& checkpoint) {
  check_attention_shapes(spec, checkpoint);
  throw_faults(faults_in(expected_tensors(spec), checkpoint, false), checkpoint);
}

}  // namespace regroup

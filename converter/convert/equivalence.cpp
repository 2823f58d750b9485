#include "converter/convert/equivalence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/families/family.h"
#include "formats/tensors/dtype.h"
#include "formats/tensors/tensor_reader.h"

namespace regroup {

namespace {

// Collects the differences.
class Comparison {
 public:
  template <typename T>
  void same(std::string_view what, const T& source, const T& target) {
    if (source != target) {
      add(what, fmt::format("{}", source), fmt::format("{}", target));
    }
  }
  template <typename T>
  void same(std::string_view what, const std::optional<T>& source, const std::optional<T>& target) {
    if (source != target) {
      add(what, text(source), text(target));
    }
  }
  // For enumerations, whose values are not printed.
  template <typename T>
  void same_kind(std::string_view what, T source, T target) {
    need(source == target, fmt::format("{} differs", what));
  }
  void in_both(std::string_view what, bool source, bool target) {
    need(source == target, fmt::format("{} in one of the two only", what));
  }
  void need(bool holds, std::string obstacle) {
    if (!holds) {
      obstacles_.push_back(std::move(obstacle));
    }
  }
  void add(std::string_view what, std::string_view source, std::string_view target) {
    obstacles_.push_back(fmt::format("{}: {}, the target's is {}", what, source, target));
  }

  std::vector<std::string> take() { return std::move(obstacles_); }

 private:
  template <typename T>
  static std::string text(const std::optional<T>& value) {
    return value ? fmt::format("{}", *value) : "none";
  }

  std::vector<std::string> obstacles_;
};

double scale_of(const ModelSpec& spec) {
  return spec.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
}

// Allows for numbers that were rounded to decimal text or to a float.
bool close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); }

void compare_sizes(Comparison& c, const ModelSpec& source, const ModelSpec& target) {
  c.same("hidden size", source.hidden_size, target.hidden_size);
  c.same("query heads", source.query_heads, target.query_heads);
  c.same("head dimension", source.head_dim, target.head_dim);
  c.same("vocabulary", source.vocab_size, target.vocab_size);
  c.same("embedding width", source.embedding_width(), target.embedding_width());
  for (const AttentionRole role : source.roles()) {
    c.same("layers", source.stack(role).size(), target.stack(role).size());
    const auto& stored = target.kv_heads_of(role);
    const auto& needed = source.kv_heads_of(role);
    for (std::size_t i = 0; i < std::min(stored.size(), needed.size()); ++i) {
      const bool fits =
          !source.attention(role, i).present() ||
          (stored[i] >= needed[i] && stored[i] % std::max<std::int64_t>(needed[i], 1) == 0);
      if (!fits) {
        c.add("kv heads", fmt::format("{}", fmt::join(needed, ",")),
              fmt::format("{}", fmt::join(stored, ",")));
        break;
      }
    }
  }
  c.same("an encoder", source.has_encoder(), target.has_encoder());
  c.same("causal attention", source.causal, target.causal);
}

void compare_rope(Comparison& c, const RopeSpec& a, const RopeSpec& b) {
  c.same("rotating dimensions", a.rotary_dim, b.rotary_dim);
  c.need(a.rotary_dim == 0 || close(a.theta, b.theta),
         fmt::format("RoPE's theta: {}, the target's is {}", a.theta, b.theta));
  const bool at_all_lengths = a.scaling.kind == RopeScaling::Kind::kLinear ||
                              (a.scaling.kind == RopeScaling::Kind::kLongRope &&
                               a.scaling.short_factors == a.scaling.long_factors);
  const bool same_scaling =
      a.scaling.kind == b.scaling.kind &&
      (a.scaling.kind == RopeScaling::Kind::kNone ||
       (close(a.scaling.factor, b.scaling.factor) &&
        (at_all_lengths || close(a.scaling.original_positions, b.scaling.original_positions)) &&
        close(a.scaling.low_frequency_factor, b.scaling.low_frequency_factor) &&
        close(a.scaling.high_frequency_factor, b.scaling.high_frequency_factor) &&
        close(a.scaling.beta_fast, b.scaling.beta_fast) &&
        close(a.scaling.beta_slow, b.scaling.beta_slow) &&
        close(a.scaling.attention_factor, b.scaling.attention_factor) &&
        a.scaling.short_factors == b.scaling.short_factors &&
        a.scaling.long_factors == b.scaling.long_factors &&
        a.scaling.truncate == b.scaling.truncate));
  c.need(same_scaling, "RoPE scaling differs");
}

void compare_positions(Comparison& c, const ModelSpec& source, const ModelSpec& target) {
  c.need(!source.limited_to_positions ||
             (target.max_positions && *target.max_positions <= source.max_positions),
         "the target takes longer sequences, which the source computes in another way");
  c.same("positions", name_of(source.positions), name_of(target.positions));
  if (source.positions != target.positions) {
    return;
  }
  if (source.positions == PositionKind::kRope) {
    compare_rope(c, source.rope, target.rope);
    if (source.window_rope || target.window_rope) {
      compare_rope(c, source.window_rope.value_or(source.rope),
                   target.window_rope.value_or(target.rope));
    }
  } else if (source.positions == PositionKind::kAlibi) {
    c.need(close(source.alibi.bias_max, target.alibi.bias_max), "ALiBi's bias_max differs");
    c.need(source.alibi.scaled == target.alibi.scaled,
           "ALiBi's bias is divided by the square root of the head dimension in one of the two");
    const auto slopes = [](const ModelSpec& spec) {
      return std::pair(alibi_slopes_per_layer(spec),
                       alibi_slopes_per_layer(spec, AttentionRole::kEncoder));
    };
    c.need(slopes(source) == slopes(target),
           "ALiBi's slopes: those recorded are not the formula's, which the target's loaders use");
  } else if (source.positions == PositionKind::kLearned) {
    c.need(source.position_offset >= target.position_offset, "position embeddings begin later");
  } else if (source.positions == PositionKind::kSinusoidal) {
    c.same("the first position", source.position_offset, target.position_offset);
    c.same("steps between sinusoids", source.sinusoids.steps, target.sinusoids.steps);
    c.same("a stored table of positions", !source.position_embedding.empty(),
           !target.position_embedding.empty());
  } else if (source.positions == PositionKind::kRelativeBias) {
    c.same("relative buckets", source.relative_bias.buckets, target.relative_bias.buckets);
    c.same("relative distance", source.relative_bias.max_distance,
           target.relative_bias.max_distance);
    c.same("a table of positions", !source.position_embedding.empty(),
           !target.position_embedding.empty());
  }
}

void compare_block(Comparison& c, const ModelSpec& source, const ModelSpec& target) {
  c.same_kind("the kind of norm", source.norm, target.norm);
  c.need(close(source.norm_epsilon, target.norm_epsilon),
         fmt::format("the norms' epsilon: {}, the target's is {}", source.norm_epsilon,
                     target.norm_epsilon));
  c.same_kind("the placement of norms", source.norm_placement, target.norm_placement);
  c.same("norms without parameters", source.norm_without_parameters,
         target.norm_without_parameters);
  c.same_kind("query and key norms", source.qk_norm, target.qk_norm);
  c.same_kind("the activation", source.activation, target.activation);
  c.same("parallel attention and MLP", source.parallel_residual, target.parallel_residual);
  c.same("clipped q, k, v", source.clip_qkv, target.clip_qkv);
  c.need(close(scale_of(source), scale_of(target)), "the scale of attention scores differs");
  c.same("soft-capped attention scores", source.attention_softcap, target.attention_softcap);
  c.same("soft-capped logits", source.logit_softcap, target.logit_softcap);
  c.need(source.qk_norm == QkNorm::kNone || source.norm_weight_offset == target.norm_weight_offset,
         "weights of query and key norms are stored with another offset");
  c.same("residuals after the norm", source.residual_after_norm, target.residual_after_norm);
  c.need(close(source.embedding_scale, target.embedding_scale), "the embeddings' scale differs");
  c.need(close(source.residual_scale, target.residual_scale), "the residuals' scale differs");
  c.need(close(source.output_scale, target.output_scale), "the output's scale differs");
}

// How experts are stored does not matter, what they compute does. `balance` is only of training.
void compare_experts(Comparison& c, const ModelSpec& source, const ModelSpec& target) {
  const ExpertRouting& a = source.routing;
  const ExpertRouting& b = target.routing;
  c.same("experts", a.experts, b.experts);
  c.same("experts per token", a.per_token, b.per_token);
  c.same("the experts' width", a.intermediate_size, b.intermediate_size);
  if (a.experts > 0) {
    c.same("experts' weights divided by their sum", a.normalised, b.normalised);
    c.need(close(a.scale, b.scale), "the scale of experts differs");
  }
}

bool biases_fit(const LinearTensors& source, const LinearTensors& target) {
  return source.bias.empty() || !target.bias.empty();
}

void compare_attention(Comparison& c, const std::string& where, const AttentionLayout& source,
                       const AttentionLayout& target) {
  c.in_both(where + ": attention", source.present(), target.present());
  const bool all_fit = biases_fit(source.q, target.q) && biases_fit(source.k, target.k) &&
                       biases_fit(source.v, target.v) && biases_fit(source.o, target.o);
  c.need(all_fit, where + ": attention biases have no place in the target");
}

// Adds the differences between two layers.
void compare_layer(Comparison& c, const std::string& where, const ModelSpec& models,
                   const LayerTensors& source, const LayerTensors& target) {
  compare_attention(c, where, source.attention, target.attention);
  compare_attention(c, where, source.cross_attention, target.cross_attention);
  c.need(source.gate.present() == target.gate.present(), where + ": a gated MLP in one of the two");
  c.in_both(where + ": experts", source.experts.present(), target.experts.present());
  c.in_both(where + ": a gate of the shared expert", source.shared_gate.present(),
            target.shared_gate.present());
  c.in_both(where + ": an MLP", source.up.present(), target.up.present());
  const bool mlp_biases = biases_fit(source.gate, target.gate) &&
                          biases_fit(source.up, target.up) && biases_fit(source.down, target.down);
  c.need(mlp_biases, where + ": MLP biases have no place in the target");
  const bool folds = models.parallel_residual && source.mlp_norm.present() &&
                     !target.mlp_norm.present() && !target.up.bias.empty() &&
                     !target.attention.q.bias.empty();
  c.need(source.mlp_norm.present() == target.mlp_norm.present() || folds,
         where + ": a separate norm of the MLP in only one of the two");
  c.in_both(where + ": a norm before attention", source.attention_norm.present(),
            target.attention_norm.present());
  c.need(source.attention_norm.bias.empty() || !target.attention_norm.bias.empty(),
         where + ": norm biases have no place in the target");
  c.in_both(where + ": RoPE", source.without_rope, target.without_rope);
  c.in_both(where + ": a relative bias", source.relative_bias.empty(),
            target.relative_bias.empty());
}

void compare_tensors(Comparison& c, const ModelSpec& source, const ModelSpec& target) {
  c.in_both("a norm of the embeddings", source.embedding_norm.present(),
            target.embedding_norm.present());
  c.in_both("a norm of the encoder's embeddings", source.encoder_embedding_norm.present(),
            target.encoder_embedding_norm.present());
  c.need(source.lm_head_bias_is_row == target.lm_head_bias_is_row,
         "a bias of the output projection stored in another shape");
  c.need(!source.spectrum.present() && !target.spectrum.present(), "audio input");
  c.in_both("a last norm", source.final_norm.present(), target.final_norm.present());
  c.in_both("projected embeddings", source.project_in.present(), target.project_in.present());
  c.same("embeddings projected after their norm", source.projected_last, target.projected_last);
  c.in_both("a masked-LM head", source.head_transform.present(), target.head_transform.present());
  c.in_both("token types", source.token_type_embedding.empty(),
            target.token_type_embedding.empty());
  c.need(source.lm_head.empty() || !target.lm_head.empty(),
         "the output projection differs from the embedding, the target ties them");
  c.need(source.lm_head_normalised == target.lm_head_normalised ||
             (source.lm_head_normalised && !target.lm_head.empty() && source.lm_head_bias.empty()),
         "the output projection's rows are normalised in one of the two only");
  c.need(source.lm_head_bias.empty() || !target.lm_head_bias.empty(),
         "a bias of the output projection has no place in the target");
  for (const AttentionRole self : {AttentionRole::kEncoder, AttentionRole::kSelf}) {
    const std::size_t layers = std::min(source.stack(self).size(), target.stack(self).size());
    for (std::size_t i = 0; i < layers; ++i) {
      const LayerTensors& from = source.stack(self)[i];
      const LayerTensors& to = target.stack(self)[i];
      c.same(fmt::format("layer {}: sliding window", i), source.window_of(from),
             target.window_of(to));
      if (from.up.present()) {
        c.same("the MLP's width", source.width_of(from), target.width_of(to));
      }
      compare_layer(c, fmt::format("layer {}", i), source, from, to);
    }
  }
}

// Ignores differences that llama.cpp's graphs cannot express. Rows of the output projection that
// were normalised when the file was written do not change when they are normalised again.
ModelSpec as_recorded(ModelSpec stored, const ModelSpec& recorded) {
  stored.activation = recorded.activation;
  use_windows_of(stored, recorded);
  stored.rope.scaling = recorded.rope.scaling;
  stored.lm_head_normalised = recorded.lm_head_normalised;
  return stored;
}

// Clears the name of a tensor that the file has and the model lacks, if it has no effect.
void drop_filler(std::string& stored, const std::string& recorded, const Checkpoint& checkpoint) {
  if (recorded.empty() && !stored.empty() && holds_only_zeros(checkpoint, checkpoint.at(stored))) {
    stored.clear();
  }
}

void drop_fillers(LayerTensors& stored, const LayerTensors& recorded,
                  const Checkpoint& checkpoint) {
  const auto drop = [&](auto& from, const auto& like) {
    drop_filler(from.bias, like.bias, checkpoint);
  };
  drop(stored.attention.q, recorded.attention.q);
  drop(stored.attention.k, recorded.attention.k);
  drop(stored.attention.v, recorded.attention.v);
  drop(stored.attention.o, recorded.attention.o);
  drop(stored.gate, recorded.gate);
  drop(stored.up, recorded.up);
  drop(stored.down, recorded.down);
  drop(stored.attention_norm, recorded.attention_norm);
  drop(stored.mlp_norm, recorded.mlp_norm);
}

// The file's model without tensors that only a graph of llama.cpp requires: zero biases, and a copy
// of the embedding as the output.
ModelSpec without_fillers(ModelSpec stored, const ModelSpec& recorded,
                          const Checkpoint& checkpoint) {
  for (std::size_t i = 0; i < stored.layers.size(); ++i) {
    drop_fillers(stored.layers[i], recorded.layers[i], checkpoint);
  }
  drop_filler(stored.final_norm.bias, recorded.final_norm.bias, checkpoint);
  drop_filler(stored.lm_head_bias, recorded.lm_head_bias, checkpoint);
  if (recorded.lm_head.empty() && !stored.lm_head.empty() &&
      repeats(checkpoint, checkpoint.at(stored.lm_head), stored.token_embedding)) {
    stored.lm_head.clear();
  }
  return stored;
}

}  // namespace

std::vector<std::string> obstacles_between(const ModelSpec& source, const ModelSpec& target) {
  Comparison comparison;
  compare_sizes(comparison, source, target);
  compare_positions(comparison, source, target);
  compare_block(comparison, source, target);
  compare_experts(comparison, source, target);
  compare_tensors(comparison, source, target);
  return comparison.take();
}

void use_windows_of(ModelSpec& spec, const ModelSpec& other) {
  spec.sliding_window = other.sliding_window;
  spec.window_rope = other.window_rope;
  for (std::size_t i = 0; i < std::min(spec.layers.size(), other.layers.size()); ++i) {
    spec.layers[i].without_window = other.layers[i].without_window;
  }
}

bool holds_only_zeros(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  bool zeros = can_decode(tensor.dtype);
  for_each_part(TensorReader(checkpoint, tensor), [&](std::uint64_t,
                                                      std::span<const std::byte> bytes) {
    zeros = zeros && std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; });
  });
  return zeros;
}

bool repeats(const Checkpoint& checkpoint, const TensorInfo& tensor, const std::string& other) {
  const TensorInfo* original = checkpoint.find(other);
  return original != nullptr && same_contents(checkpoint, tensor, *original);
}

void record_source(GgufMetadata& metadata, const Model& source, const std::string& config_text) {
  Json dtypes = Json::object();
  for (const TensorInfo& tensor : source.checkpoint.tensors()) {
    dtypes[tensor.name] = std::string(name_of(tensor.dtype));
  }
  metadata.set_string(kSourceConfigKey, config_text);
  metadata.set_string(kSourceDtypesKey,
                      dtypes.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::optional<Target> recorded_target(const Model& source, const ModelSpec& grouped) {
  if (!source.gguf || !source.gguf->contains(kSourceConfigKey)) {
    return std::nullopt;
  }
  const std::string where = printable_path(source.path) + ": " + std::string(kSourceConfigKey);
  Target target;
  target.in_place = false;
  target.config_text = *source.gguf->text(kSourceConfigKey);
  target.spec = describe_model(parse_json_object(target.config_text, where), Checkpoint({}), where);
  if (target.spec.layers.size() != grouped.layers.size()) {
    throw_bad_input("{} has {} layers, the file has {}", where, target.spec.layers.size(),
                    grouped.layers.size());
  }
  target.spec.kv_heads = grouped.kv_heads;
  target.spec.alibi.slopes = grouped.alibi.slopes;  // from the file, or of the heads that move now
  const ModelSpec stored = without_fillers(grouped, target.spec, source.checkpoint);
  if (!stored.lm_head.empty() && target.spec.lm_head.empty()) {  // see settle_ties()
    target.spec.lm_head = target.spec.tied_head;
  }
  const auto obstacles = obstacles_between(as_recorded(stored, target.spec), target.spec);
  if (!obstacles.empty()) {
    throw_bad_input("{} does not describe the model in the file: {}", where, obstacles.front());
  }
  return target;
}

std::optional<DType> recorded_dtype(const Model& source, const std::string& tensor) {
  if (!source.gguf || !source.gguf->contains(kSourceDtypesKey)) {
    return std::nullopt;
  }
  const Json dtypes = Json::parse(*source.gguf->text(kSourceDtypesKey), nullptr, false);
  const auto found = dtypes.is_object() ? dtypes.find(tensor) : dtypes.end();
  return found != dtypes.end() && found->is_string() ? dtype_from_name(found->get<std::string>())
                                                     : std::nullopt;
}

}  // namespace regroup

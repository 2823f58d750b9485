#include "converter/convert/tensor_mapping.h"

#include <algorithm>
#include <optional>

#include "converter/convert/attention_pooler.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

// The source of each feature of a rotating head. Empty if both specs pair features in the same way.
Rows rope_order(const ModelSpec& source, const ModelSpec& target) {
  const bool rotates =
      source.positions == PositionKind::kRope && target.positions == PositionKind::kRope;
  if (!rotates || source.rope.interleaved == target.rope.interleaved) {
    return {};
  }
  Rows order = evenly_spaced(source.head_dim);
  const std::int64_t half = source.rope.rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const bool pairs = target.rope.interleaved;
    order[static_cast<std::size_t>(pairs ? 2 * i : i)] = pairs ? i : 2 * i;
    order[static_cast<std::size_t>(pairs ? 2 * i + 1 : i + half)] = pairs ? i + half : 2 * i + 1;
  }
  return order;
}

// Where one map of the experts is stored, as rows of its tensors.
struct StoredExperts {
  const std::vector<std::string>& names;  // one per expert, or one of all
  std::int64_t rows_each = 0;             // rows of an expert in its tensor
  std::int64_t first = 0;                 // of the map among these
  Shape shape;                            // of the tensors

  StoredExperts(const ExpertTensors& experts, const std::vector<std::string>& tensors,
                const ExpertRouting& routing, std::int64_t rows, std::int64_t columns)
      : names(tensors), rows_each(rows) {
    if (experts.fused_gate() && &tensors != &experts.down) {
      rows_each = 2 * rows;
      first = &tensors == &experts.up ? rows : 0;
    }
    shape =
        experts.stacked ? Shape{routing.experts, rows_each, columns} : Shape{rows_each, columns};
  }

  std::size_t tensor_of(std::size_t expert) const { return names.size() == 1 ? 0 : expert; }
  std::int64_t row_of(std::size_t expert) const {
    return first + (names.size() == 1 ? static_cast<std::int64_t>(expert) * rows_each : 0);
  }
};

// Walks both models in parallel.
class ModelMapping {
 public:
  ModelMapping(const ConversionPlan& plan, const Checkpoint& source)
      : plan_(plan), checkpoint_(source) {}

  void embeddings() {
    const auto positions = [&](const std::string& from, const std::string& to) {
      if (!from.empty() && !to.empty()) {
        const std::int64_t rows = steps_.rows_of(from);
        const std::int64_t skip = source_.position_offset - target_.position_offset;
        steps_.place(from, false, to, false, {{skip}, {0}, rows - skip, rows - skip});
      }
    };
    steps_.linear({source_.token_embedding, "", false}, {target_.token_embedding, "", false});
    positions(source_.position_embedding, target_.position_embedding);
    positions(source_.encoder_position_embedding, target_.encoder_position_embedding);
    steps_.linear({source_.token_type_embedding, "", false},
                  {target_.token_type_embedding, "", false});
    steps_.linear(source_.project_in, target_.project_in);
    steps_.norm(source_.embedding_norm, target_.embedding_norm);
    steps_.norm(source_.encoder_embedding_norm, target_.encoder_embedding_norm);
  }

  void encoder() {
    if (source_.has_encoder()) {
      stack(AttentionRole::kEncoder);
      steps_.norm(source_.encoder_final_norm, target_.encoder_final_norm);
    }
  }

  void stack(AttentionRole self) {
    for (std::size_t i = 0; i < source_.stack(self).size(); ++i) {
      layer(self, i);
    }
  }

  void head() {
    steps_.norm(source_.final_norm, target_.final_norm);
    steps_.linear(source_.project_out, target_.project_out);
    steps_.linear(source_.head_transform, target_.head_transform);
    steps_.norm(source_.head_norm, target_.head_norm);
    const std::string& output = source_.lm_head.empty() ? source_.token_embedding : source_.lm_head;
    if (source_.lm_head_normalised && !target_.lm_head_normalised) {
      steps_.unit_rows(output, target_.lm_head);
    } else if (!target_.lm_head.empty()) {
      steps_.linear({output, source_.lm_head_bias, false},
                    {target_.lm_head, target_.lm_head_bias, false});
    } else if (!source_.lm_head_bias.empty()) {
      steps_.vector(source_.lm_head_bias, target_.lm_head_bias,
                    Features::all(steps_.rows_of(source_.lm_head_bias)));
    }
  }

  // Maps queries, keys, values, output and the norms of queries and keys; `fold` is folded into the
  // maps that read the layer's input. Throws kBadInput if heads with per-head norms would be
  // pooled.
  void attention(AttentionRole role, std::size_t layer, const NormFold* fold = nullptr) {
    const AttentionLayout& from = source_.attention(role, layer);
    const AttentionLayout& to = target_.attention(role, layer);
    if (!from.present()) {
      return;
    }
    Projections parts = projections(role, layer);
    const bool pools = source_.kv_heads_of(role)[layer] != grouped_.kv_heads_of(role)[layer];
    if (pools && needs_solver(pooling_.method) && absorbs_qk_norms(source_)) {
      pooled_norms(role, layer, parts);
    } else {
      head_norms(role, layer, parts);
    }
    if (pools && pooling_.needs_solver()) {
      take_pooled(parts, role, layer);
    }
    steps_.linear(from.q, to.q, parts.q, fold);
    steps_.linear(from.k, to.k, parts.k, fold);
    steps_.linear(from.v, to.v, parts.v, fold);
    if (order_.moves(role, layer) && !parts.o.pooled) {
      outputs(from, to, order_.heads(role, layer, source_.query_heads));
    } else {
      steps_.linear(from.o, to.o, parts.o);
    }
  }

  // Maps T5's relative bias if the layer holds one: moves the columns, one per query head, to the
  // heads' new places.
  void relative_bias(AttentionRole self, std::size_t layer) {
    const std::string& from = source_.stack(self)[layer].relative_bias;
    const std::string& to = target_.stack(self)[layer].relative_bias;
    if (from.empty() || to.empty()) {
      return;
    }
    const Rows heads = order_.heads(self, layer, source_.query_heads);
    steps_.place(from, true, to, true,
                 {heads, evenly_spaced(std::ssize(heads)), 1, std::ssize(heads)});
  }

  std::vector<TensorStep> take() { return steps_.take(); }

 private:
  struct Projections {
    Features q, k, v, o;
  };

  void layer(AttentionRole self, std::size_t i) {
    const LayerTensors& from = source_.stack(self)[i];
    const LayerTensors& to = target_.stack(self)[i];
    std::optional<NormFold> attention_fold, mlp_fold;
    if (source_.parallel_residual && from.mlp_norm.present() && !to.mlp_norm.present()) {
      // Two norms become one. The MLP's norm is folded into the MLP's first map. If that would
      // divide by numbers close to zero, both norms are folded.
      mlp_fold = NormFold{from.mlp_norm, from.attention_norm};
      if (!can_fold(checkpoint_, *mlp_fold, source_.norm_weight_offset)) {
        attention_fold = NormFold{from.attention_norm};
        mlp_fold->to = {};
      }
    }
    const auto pointer = [](const std::optional<NormFold>& fold) {
      return fold ? &*fold : nullptr;
    };
    if (attention_fold) {
      steps_.identity_norm(to.attention_norm, from.attention_norm);
    } else {
      steps_.norm(from.attention_norm, to.attention_norm);
    }
    attention(self, i, pointer(attention_fold));
    relative_bias(self, i);
    steps_.norm(from.attention_output_norm, to.attention_output_norm);
    steps_.norm(from.cross_norm, to.cross_norm);
    if (source_.has_encoder() && self == AttentionRole::kSelf) {
      attention(AttentionRole::kCross, i);
    }
    steps_.norm(from.mlp_norm, to.mlp_norm);
    mlp(from, to, pointer(mlp_fold));
    steps_.norm(from.mlp_output_norm, to.mlp_output_norm);
  }

  // Experts may be a tensor each or one tensor of all, and gate and up one tensor, in either model.
  void experts(const ExpertTensors& from, const ExpertTensors& to) {
    if (!from.present() || !to.present()) {
      return;
    }
    const ExpertRouting& routing = source_.routing;
    const std::int64_t width = routing.intermediate_size;
    const std::int64_t hidden = source_.hidden_size;
    steps_.linear({from.router, "", false}, {to.router, "", false});
    const auto copy = [&](const std::vector<std::string>& source,
                          const std::vector<std::string>& target, std::int64_t rows,
                          std::int64_t columns) {
      const StoredExperts stored(from, source, routing, rows, columns);
      const StoredExperts wanted(to, target, routing, rows, columns);
      for (std::size_t i = 0; i < static_cast<std::size_t>(routing.experts); ++i) {
        steps_.copy_rows(stored.names[stored.tensor_of(i)], {stored.row_of(i)},
                         wanted.names[wanted.tensor_of(i)], wanted.shape, {wanted.row_of(i)}, rows);
      }
    };
    copy(from.gate, to.gate, width, hidden);
    copy(from.up, to.up, width, hidden);
    copy(from.down, to.down, hidden, width);
  }

  // Gate and up may be one tensor in either model, gate‖up.
  void mlp(const LayerTensors& from, const LayerTensors& to, const NormFold* fold) {
    if (from.fused_gate() == to.fused_gate()) {
      steps_.linear(from.gate, to.gate, fold);
      if (!from.fused_gate()) {
        steps_.linear(from.up, to.up, fold);
      }
    } else {
      const std::int64_t width = steps_.rows_of(from.up.weight) / (from.fused_gate() ? 2 : 1);
      const std::int64_t total = to.fused_gate() ? 2 * width : width;
      const Rows up_from = {from.fused_gate() ? width : 0}, up_to = {to.fused_gate() ? width : 0};
      steps_.linear(from.gate, to.gate, {{0}, {0}, width, total});
      steps_.linear(from.up, to.up, {up_from, up_to, width, total}, fold);
    }
    steps_.linear(from.down, to.down);
    experts(from.experts, to.experts);
    if (from.shared_gate.present() && to.shared_gate.present()) {
      const std::int64_t hidden = source_.hidden_size;
      steps_.copy_rows(from.shared_gate.weight, {0}, to.shared_gate.weight,
                       to.shared_gate_is_vector ? Shape{hidden} : Shape{1, hidden}, {0}, 1);
    }
  }

  // Source and target features of each projection; pooled heads are given by name.
  Projections projections(AttentionRole role, std::size_t layer) const {
    const AttentionLayout& from = source_.attention(role, layer);
    const std::int64_t before = source_.kv_heads_of(role)[layer];
    const std::int64_t groups = grouped_.kv_heads_of(role)[layer];
    const std::int64_t after = target_.kv_heads_of(role)[layer];
    const std::int64_t d = source_.head_dim;
    const HeadFeatures old_heads = head_features(from.packing, source_.query_heads, before, d);
    const HeadFeatures new_heads =
        head_features(target_.attention(role, layer).packing, source_.query_heads, after, d);
    const Pooling named = pooling_.needs_solver() ? Pooling{} : pooling_;
    auto kv = heads_to_average(named, before, groups, after, stream_of(role, layer));
    const Rows kv_order = order_.heads(role, layer, before);
    for (std::vector<std::int64_t>& heads : kv) {
      heads = taken(kv_order, heads);
    }
    const Rows q_from = taken(old_heads.q, order_.heads(role, layer, source_.query_heads));
    return {.q = {q_from, new_heads.q, d, new_heads.q_total, {}, rope_order_},
            .k = {old_heads.k, new_heads.k, d, new_heads.k_total, kv, rope_order_},
            .v = {old_heads.v, new_heads.v, d, new_heads.v_total, kv, {}},
            .o = Features::all(checkpoint_.at(from.o.weight).shape.at(from.o.input_major ? 1 : 0))};
  }

  // The same for heads pooled by a method with a solver.
  void take_pooled(Projections& parts, AttentionRole role, std::size_t layer) const {
    const std::int64_t groups = grouped_.kv_heads_of(role)[layer];
    parts.k.mean_of = parts.v.mean_of =
        heads_of_groups(groups, groups, target_.kv_heads_of(role)[layer]);
    parts.k = parts.k.out_of({role, layer, &AttentionHeads::k}, groups);
    parts.v = parts.v.out_of({role, layer, &AttentionHeads::v}, groups);
    parts.q = parts.q.out_of({role, layer, &AttentionHeads::q}, std::ssize(parts.q.from));
    parts.o = parts.o.out_of({role, layer, &AttentionHeads::o}, 1);
  }

  void head_norms(AttentionRole role, std::size_t layer, const Projections& parts) {
    const AttentionLayout& from = source_.attention(role, layer);
    const AttentionLayout& to = target_.attention(role, layer);
    const std::int64_t kv_heads = source_.kv_heads_of(role)[layer];
    if (source_.qk_norm != QkNorm::kPerHead) {
      norms(from.q_norms, to.q_norms, parts.q);
      norms(from.k_norms, to.k_norms, parts.k);
    } else if (kv_heads == target_.kv_heads_of(role)[layer]) {
      norms(taken(from.q_norms, order_.heads(role, layer, source_.query_heads)), to.q_norms,
            parts.q);
      norms(taken(from.k_norms, order_.heads(role, layer, kv_heads)), to.k_norms, parts.k);
    } else {
      throw_bad_input(
          "{}: every key head has its own norm ({}); heads that are normalised differently have no "
          "mean that a loader could use",
          printable(source_.architecture), printable(from.k_norms.front().weight));
    }
  }

  // The numbers that take the place of weights which moved into the projections.
  void pooled_norms(AttentionRole role, std::size_t layer, Projections parts) {
    const AttentionLayout& from = source_.attention(role, layer);
    const AttentionLayout& to = target_.attention(role, layer);
    const auto put = [&](const std::vector<NormTensors>& before,
                         const std::vector<NormTensors>& after, const Features& heads,
                         DenseLinear AttentionHeads::* part) {
      const Features features =
          source_.qk_norm == QkNorm::kProjection
              ? heads
              : Features::all(source_.head_dim).out_of({role, layer, part}, 1);
      if (!before.empty() && !after.empty()) {
        steps_.vector(before.front().weight, after.front().weight, features);
      }
    };
    const std::int64_t groups = grouped_.kv_heads_of(role)[layer];
    parts.k.mean_of = heads_of_groups(groups, groups, target_.kv_heads_of(role)[layer]);
    put(from.q_norms, to.q_norms,
        parts.q.out_of({role, layer, &AttentionHeads::q_norm}, std::ssize(parts.q.from)),
        &AttentionHeads::q_norm);
    put(from.k_norms, to.k_norms, parts.k.out_of({role, layer, &AttentionHeads::k_norm}, groups),
        &AttentionHeads::k_norm);
  }

  // Maps norms of queries or keys. Weights of the whole projection move with its heads. Weights
  // that all heads share follow the order of features.
  void norms(const std::vector<NormTensors>& from, const std::vector<NormTensors>& to,
             const Features& heads) {
    for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
      Features features = heads;
      if (source_.qk_norm != QkNorm::kProjection) {
        features = Features::all(source_.head_dim);
        features.row_order = heads.row_order;
      }
      steps_.vector(from[i].weight, to[i].weight, features);
      steps_.vector(from[i].bias, to[i].bias, features);
    }
  }

  // The output projection with its columns permuted to query heads `heads`.
  void outputs(const AttentionLayout& from, const AttentionLayout& to, const Rows& heads) {
    const std::int64_t d = source_.head_dim;
    const TensorInfo& tensor = checkpoint_.at(from.o.weight);
    if (is_block_type(tensor.dtype)) {
      throw_usage("tensor {} is {}: its heads can move only if --pool lowrank recomputes it",
                  printable(tensor.name), name_of(tensor.dtype));
    }
    Features columns{{}, evenly_spaced(std::ssize(heads), d), d, d * std::ssize(heads)};
    for (const std::int64_t head : heads) {
      columns.from.push_back(d * head);
    }
    steps_.place(from.o.weight, !from.o.input_major, to.o.weight, !to.o.input_major, columns);
    const std::int64_t outputs = tensor.shape.at(from.o.input_major ? 1 : 0);
    if (!to.o.bias.empty() && from.o.bias.empty()) {
      steps_.zeros(to.o.bias, tensor.dtype, outputs);
    } else {
      steps_.vector(from.o.bias, to.o.bias, Features::all(outputs));
    }
  }

  const ConversionPlan& plan_;
  const Checkpoint& checkpoint_;
  const ModelSpec& source_ = plan_.spec;
  const ModelSpec& grouped_ = plan_.grouped;
  const ModelSpec& target_ = plan_.target;
  const Pooling& pooling_ = plan_.request.pooling;
  const HeadOrder& order_ = plan_.request.order;
  Rows rope_order_ = rope_order(source_, target_);
  TensorStepBuilder steps_{checkpoint_, source_.norm_weight_offset, target_.norm_weight_offset};
};

}  // namespace

std::vector<TensorStep> map_attention_tensors(const ConversionPlan& plan,
                                              const Checkpoint& source) {
  ModelMapping mapping(plan, source);
  for (const AttentionRole role : plan.spec.roles()) {
    for (std::size_t i = 0; i < plan.spec.stack(role).size(); ++i) {
      mapping.attention(role, i);
      if (role != AttentionRole::kCross) {
        mapping.relative_bias(role, i);
      }
    }
  }
  return mapping.take();
}

std::vector<TensorStep> map_model_tensors(const ConversionPlan& plan, const Checkpoint& source) {
  ModelMapping mapping(plan, source);
  mapping.embeddings();
  mapping.encoder();
  mapping.stack(AttentionRole::kSelf);
  mapping.head();
  return mapping.take();
}

}  // namespace regroup

#include "converter/tensor_mapping/tensor_mapping.h"

#include <optional>

#include "converter/tensor_mapping/attention_mapping.h"
#include "converter/tensor_mapping/norm_fold.h"
#include "converter/tensor_mapping/tensor_step_builder.h"

namespace regroup {
namespace {

TensorStepBuilder no_steps(const TensorMapping& models) {
  return {models.checkpoint, models.source.norm_weight_offset, models.target.norm_weight_offset};
}

// Walks both models in parallel.
class ModelMapping {
 public:
  explicit ModelMapping(const TensorMapping& models)
      : source_(models.source),
        target_(models.target),
        checkpoint_(models.checkpoint),
        steps_(no_steps(models)),
        attention_(models, steps_) {}
  ModelMapping(const ModelMapping&) = delete;
  ModelMapping& operator=(const ModelMapping&) = delete;

  void embeddings();
  void encoder();
  void stack(AttentionRole self);
  void head();

  std::vector<TensorStep> take() { return steps_.take(); }

 private:
  void layer(AttentionRole self, std::size_t i);
  void experts(const ExpertTensors& from, const ExpertTensors& to);
  void mlp(const LayerTensors& from, const LayerTensors& to, const NormFold* fold);

  const ModelSpec& source_;
  const ModelSpec& target_;
  const Checkpoint& checkpoint_;
  TensorStepBuilder steps_;
  AttentionMapping attention_;
};

void ModelMapping::layer(AttentionRole self, std::size_t i) {
  const LayerTensors& from = source_.stack(self)[i];
  const LayerTensors& to = target_.stack(self)[i];
  std::optional<NormFold> attention_fold, mlp_fold;
  if (source_.parallel_residual && from.mlp_norm.present() && !to.mlp_norm.present()) {
    // Two norms become one. The MLP's norm is folded into the MLP's first map. If that would divide
    // by numbers close to zero, both norms are folded.
    mlp_fold = {from.mlp_norm, from.attention_norm, {}, {}};
    if (!can_fold(checkpoint_, *mlp_fold, source_.norm_weight_offset)) {
      attention_fold = {from.attention_norm, {}, {}, {}};
      mlp_fold->to = {};
    }
  }
  const auto pointer = [](const std::optional<NormFold>& fold) { return fold ? &*fold : nullptr; };
  if (attention_fold) {
    steps_.identity_norm(to.attention_norm, from.attention_norm);
  } else {
    steps_.norm(from.attention_norm, to.attention_norm);
  }
  attention_.attention(self, i, pointer(attention_fold));
  attention_.relative_bias(self, i);
  steps_.norm(from.attention_output_norm, to.attention_output_norm);
  steps_.norm(from.cross_norm, to.cross_norm);
  if (source_.has_encoder() && self == AttentionRole::kSelf) {
    attention_.attention(AttentionRole::kCross, i);
  }
  steps_.norm(from.mlp_norm, to.mlp_norm);
  mlp(from, to, pointer(mlp_fold));
  steps_.norm(from.mlp_output_norm, to.mlp_output_norm);
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

// Experts may be a tensor each or one tensor of all, and gate and up one tensor, in either model.
void ModelMapping::experts(const ExpertTensors& from, const ExpertTensors& to) {
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
void ModelMapping::mlp(const LayerTensors& from, const LayerTensors& to, const NormFold* fold) {
  if (from.fused_gate() == to.fused_gate()) {
    steps_.linear(from.gate, to.gate, fold);
    if (!from.fused_gate()) {
      steps_.linear(from.up, to.up, fold);
    }
  } else {
    const std::int64_t width = steps_.rows_of(from.up.weight) / (from.fused_gate() ? 2 : 1);
    const std::int64_t total = to.fused_gate() ? 2 * width : width;
    const Rows up_from = {from.fused_gate() ? width : 0}, up_to = {to.fused_gate() ? width : 0};
    steps_.linear(from.gate, to.gate, {{0}, {0}, width, total, {}, {}});
    steps_.linear(from.up, to.up, {up_from, up_to, width, total, {}, {}}, fold);
  }
  steps_.linear(from.down, to.down);
  experts(from.experts, to.experts);
  if (from.shared_gate.present() && to.shared_gate.present()) {
    const std::int64_t hidden = source_.hidden_size;
    steps_.copy_rows(from.shared_gate.weight, {0}, to.shared_gate.weight,
                     to.shared_gate_is_vector ? Shape{hidden} : Shape{1, hidden}, {0}, 1);
  }
}

void ModelMapping::stack(AttentionRole self) {
  for (std::size_t i = 0; i < source_.stack(self).size(); ++i) {
    layer(self, i);
  }
}

void ModelMapping::encoder() {
  if (source_.has_encoder()) {
    stack(AttentionRole::kEncoder);
    steps_.norm(source_.encoder_final_norm, target_.encoder_final_norm);
  }
}

void ModelMapping::embeddings() {
  const auto whole = [&](const std::string& from, const std::string& to) {
    if (!from.empty() && !to.empty()) {
      steps_.linear({from, "", false}, {to, "", false});
    }
  };
  const auto positions = [&](const std::string& from, const std::string& to) {
    if (!from.empty() && !to.empty()) {
      const std::int64_t rows = steps_.rows_of(from);
      const std::int64_t skip = source_.position_offset - target_.position_offset;
      steps_.place(from, false, to, false, {{skip}, {0}, rows - skip, rows - skip, {}, {}});
    }
  };
  whole(source_.token_embedding, target_.token_embedding);
  positions(source_.position_embedding, target_.position_embedding);
  positions(source_.encoder_position_embedding, target_.encoder_position_embedding);
  whole(source_.token_type_embedding, target_.token_type_embedding);
  steps_.linear(source_.project_in, target_.project_in);
  steps_.norm(source_.embedding_norm, target_.embedding_norm);
  steps_.norm(source_.encoder_embedding_norm, target_.encoder_embedding_norm);
}

void ModelMapping::head() {
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

}  // namespace

std::vector<TensorStep> map_attention_tensors(const TensorMapping& models) {
  TensorStepBuilder steps = no_steps(models);
  AttentionMapping attention(models, steps);
  for (const AttentionRole role : models.source.roles()) {
    for (std::size_t i = 0; i < models.source.stack(role).size(); ++i) {
      attention.attention(role, i);
      if (role != AttentionRole::kCross) {
        attention.relative_bias(role, i);
      }
    }
  }
  return steps.take();
}

std::vector<TensorStep> map_model_tensors(const TensorMapping& models) {
  ModelMapping mapping(models);
  mapping.embeddings();
  mapping.encoder();
  mapping.stack(AttentionRole::kSelf);
  mapping.head();
  return mapping.take();
}

}  // namespace regroup

#include "uptrain/model/model_tail.h"

namespace regroup {

ModelSpec without_layers(ModelSpec spec) {
  spec.layers.clear();
  spec.encoder_layers.clear();
  spec.kv_heads.clear();
  spec.cross_kv_heads.clear();
  spec.encoder_kv_heads.clear();
  spec.alibi.slopes.clear();
  spec.encoder_final_norm = {};
  return spec;
}

ModelTail::ModelTail(const Model& source, c10::Device device)
    : ModelTail(
          without_layers(source.spec),
          load_parameters(without_layers(source.spec), source.checkpoint, at::kFloat, device)) {}

ModelTail::ModelTail(const ModelSpec& spec, const Parameters& parameters)
    : model_(spec, parameters), project_out_(make_linear(spec.project_out, parameters)) {
  if (spec.final_norm.present() || spec.norm_without_parameters) {
    norm_ = make_norm(spec.final_norm, spec, parameters);
  }
}

at::Tensor ModelTail::finished(const at::Tensor& hidden) const {
  const at::Tensor normalised = norm_ ? (*norm_)(hidden) : hidden;
  return project_out_.present() ? project_out_(normalised) : normalised;
}

HeadInputs ModelTail::head_inputs(const at::Tensor& hidden) const {
  return model_.head_inputs(finished(hidden));
}

at::Tensor ModelTail::logits(const at::Tensor& hidden) const {
  return model_.logits(finished(hidden));
}

}  // namespace regroup

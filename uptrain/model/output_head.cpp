#include "uptrain/model/output_head.h"

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

OutputHead::OutputHead(const Model& source, c10::Device device)
    : OutputHead(
          without_layers(source.spec),
          load_parameters(without_layers(source.spec), source.checkpoint, at::kFloat, device)) {}

OutputHead::OutputHead(const ModelSpec& spec, const Parameters& parameters)
    : model_(spec, parameters), project_out_(make_linear(spec.project_out, parameters)) {
  if (spec.final_norm.present() || spec.norm_without_parameters) {
    norm_ = make_norm(spec.final_norm, spec, parameters);
  }
}

at::Tensor OutputHead::finished(const at::Tensor& hidden) const {
  const at::Tensor normalised = norm_ ? (*norm_)(hidden) : hidden;
  return project_out_.present() ? project_out_(normalised) : normalised;
}

LmHeadInputs OutputHead::lm_head_inputs(const at::Tensor& hidden) const {
  return model_.lm_head_inputs(finished(hidden));
}

at::Tensor OutputHead::logits(const at::Tensor& hidden) const {
  return model_.logits(finished(hidden));
}

}  // namespace regroup

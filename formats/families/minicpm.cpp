// MiniCPM (1, 2 and 4): Llama's block with scaled embeddings, residuals and outputs.
#include <cmath>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

double scale_at(const ConfigReader& config, std::string_view key) {
  const double scale = config.number_or({key}, 0.0);
  if (!(scale > 0.0) || !std::isfinite(scale)) {
    throw_bad_input("{}: {} is {}, a positive number is needed", config.where(), key,
                    config.find(key) == nullptr ? "missing" : std::to_string(scale));
  }
  return scale;
}

}  // namespace

ModelSpec describe_minicpm(const ConfigReader& config, const Checkpoint& checkpoint) {
  if (config.number_or({"num_experts"}, 0.0) > 0.0) {
    throw_bad_input("{}: num_experts: models with several experts are not supported",
                    config.where());
  }
  ModelSpec spec = describe_llama_like(config, checkpoint, {});
  spec.embedding_scale = scale_at(config, "scale_emb");
  spec.residual_scale =
      scale_at(config, "scale_depth") / std::sqrt(static_cast<double>(spec.layer_count()));
  spec.output_scale = scale_at(config, "dim_model_base") / static_cast<double>(spec.hidden_size);
  if (spec.rope.scaling.kind != RopeScaling::Kind::kNone) {
    spec.not_computable = "rope_scaling, which MiniCPM's own code computes";
  }
  if (config.find("sparse_config") != nullptr) {
    spec.not_computable = "sparse_config";
  }
  spec.loaders_read_kv_heads = true;  // its own code does
  name_llama_tensors(spec, config, checkpoint, llama_biases(config), /*tied_by_default=*/true);
  return spec;
}

}  // namespace regroup

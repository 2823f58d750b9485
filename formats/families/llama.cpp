// Llama and the models that share its graph: Mistral, Qwen2, Qwen3, Granite, SmolLM3.
#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/layer_windows.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

// Marks SmolLM3's layers without RoPE: those with a 0 in no_rope_layers, or every fourth.
void read_layers_without_rope(ModelSpec& spec, const ConfigReader& config) {
  const std::int64_t interval = config.optional_count({"no_rope_layer_interval"}).value_or(4);
  const Json* listed = config.find("no_rope_layers");
  const bool fits = listed == nullptr ||
                    (listed->is_array() && listed->size() >= spec.layers.size() &&
                     std::all_of(listed->begin(), listed->end(),
                                 [](const Json& rotates) { return rotates == 0 || rotates == 1; }));
  if (!fits) {
    throw_bad_input("{}: no_rope_layers must list 1 (with RoPE) or 0 for each of the {} layers",
                    config.where(), spec.layers.size());
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].without_rope =
        listed != nullptr ? (*listed)[i] == 0 : (static_cast<std::int64_t>(i) + 1) % interval == 0;
  }
}

}  // namespace

ModelSpec describe_llama(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {});
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  return spec;
}

ModelSpec describe_mistral(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 8});
  // The default is 4096. null means no window.
  spec.sliding_window = config.optional_count({"sliding_window"});
  if (!config.mentions("sliding_window")) {
    spec.sliding_window = 4096;
  }
  name_llama_tensors(spec, config, checkpoint, {});
  return spec;
}

ModelSpec describe_qwen2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 32});
  read_qwen_window(spec, config);
  name_llama_tensors(spec, config, checkpoint, {.qkv = true});
  return spec;
}

ModelSpec describe_qwen3(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 32, .head_dim = 128});
  read_qwen_window(spec, config);
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  add_qk_norms(spec, checkpoint, QkNorm::kSharedAcrossHeads);
  return spec;
}

ModelSpec describe_granite(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {});
  spec.embedding_scale = config.number_or({"embedding_multiplier"}, 1.0);
  spec.attention_scale = config.number_or({"attention_multiplier"}, 1.0);
  spec.residual_scale = config.number_or({"residual_multiplier"}, 1.0);
  spec.output_scale = 1.0 / config.number_or({"logits_scaling"}, 1.0);
  if (!std::isfinite(spec.output_scale)) {
    throw_bad_input("{}: logits_scaling is 0, another number is needed", config.where());
  }
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  return spec;
}

ModelSpec describe_smollm3(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 4},
                                       /*default_epsilon=*/1e-6, {.theta = 2000000.0});
  read_layers_without_rope(spec, config);
  if (config.flag_or({"use_sliding_window"}, false) && config.find("sliding_window") != nullptr) {
    std::vector<bool> slides;
    for (const LayerTensors& layer : spec.layers) {
      slides.push_back(layer.without_rope);
    }
    set_windows(spec, listed_windows(config, slides.size()).value_or(slides),
                config.count({"sliding_window"}));
  }
  name_llama_tensors(spec, config, checkpoint, llama_biases(config), /*tied_by_default=*/true);
  return spec;
}

}  // namespace regroup

#include "formats/families/gguf/gguf_positions.h"

#include <cmath>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/config/config_reader.h"

namespace regroup {
namespace {

// The parameters cannot be read from the frequency factors in rope_freqs.weight. regroup records
// them.
void read_recorded_scaling(ModelSpec& spec, const GgufHyperparameters& parameters) {
  const auto text = parameters.metadata().text("regroup.rope_scaling");
  if (!text) {
    spec.not_computable = "frequency factors in rope_freqs.weight";
    return;
  }
  const std::string where = parameters.where() + ": regroup.rope_scaling";
  const Json json = parse_json_object(*text, where);
  const ConfigReader given(json, where);
  RopeScaling& scaling = spec.rope.scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor = given.number_or({"factor"}, 1.0);
  scaling.original_positions = given.number_or({"original_max_position_embeddings"}, 0.0);
  scaling.low_frequency_factor = given.number_or({"low_freq_factor"}, 1.0);
  scaling.high_frequency_factor = given.number_or({"high_freq_factor"}, 4.0);
}

void read_rope_scaling(ModelSpec& spec, const GgufHyperparameters& parameters) {
  const std::string type(
      parameters.metadata().text(parameters.key("rope.scaling.type")).value_or("linear"));
  const double factor =
      parameters.number_or("rope.scaling.factor", parameters.number_or("rope.scale_linear", 0.0));
  const double attention_factor = parameters.number_or("rope.scaling.attn_factor", 1.0);
  RopeScaling& scaling = spec.rope.scaling;
  if (type != "none" && type != "linear" && type != "yarn") {
    spec.not_computable = "rope.scaling.type " + printable(type);
  } else if (type == "yarn" && factor > 0.0) {
    scaling.kind = RopeScaling::Kind::kYarn;
    scaling.factor = factor;
    scaling.original_positions =
        parameters.number_or("rope.scaling.original_context_length",
                             static_cast<double>(spec.max_positions.value_or(0)));
    scaling.attention_factor =
        attention_factor * (factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0);
  } else if (attention_factor != 1.0) {
    spec.not_computable = "rope.scaling.attn_factor without yarn";
  } else if (type == "linear" && factor != 0.0 && factor != 1.0) {
    scaling.kind = RopeScaling::Kind::kLinear;
    scaling.factor = factor;
  }
  if (factor < 0.0 || !std::isfinite(factor)) {
    throw_bad_input("{}: {} is {}, a positive number is needed", parameters.where(),
                    parameters.key("rope.scaling.factor"), factor);
  }
}

void read_rope(ModelSpec& spec, const GgufHyperparameters& parameters, const GgufGraph& graph,
               bool factors) {
  spec.rope.interleaved = graph.interleaved;
  spec.rope.theta = parameters.number_or("rope.freq_base", 10000.0);
  spec.rope.rotary_dim = parameters.optional_count("rope.dimension_count").value_or(spec.head_dim);
  const bool fits = graph.whole_head_rotates ? spec.rope.rotary_dim == spec.head_dim
                                             : spec.rope.rotary_dim <= spec.head_dim;
  if (!(spec.rope.theta > 0.0) || !fits || spec.rope.rotary_dim % 2 != 0) {
    throw_bad_input("{}: RoPE with base {} on {} of {} dimensions; {} of them is needed",
                    parameters.where(), spec.rope.theta, spec.rope.rotary_dim, spec.head_dim,
                    graph.whole_head_rotates ? "an even number and all" : "an even part");
  }
  read_rope_scaling(spec, parameters);
  if (factors && graph.rope_factors) {
    read_recorded_scaling(spec, parameters);
  }
}

}  // namespace

void read_gguf_positions(ModelSpec& spec, const GgufHyperparameters& parameters,
                         const GgufGraph& graph, const GgufParts& parts) {
  const std::optional<PositionKind> positions = graph.positions_with(spec.layer_count());
  if (!positions) {
    throw_bad_input("{}: {} is {}; llama.cpp knows the positions of {} and {} layers only",
                    parameters.where(), parameters.key("block_count"), spec.layer_count(),
                    graph.alibi_layers, graph.rope_layers);
  }
  spec.positions = *positions;
  if (spec.positions == PositionKind::kAlibi && graph.max_alibi_bias) {
    spec.alibi.bias_max = parameters.number_or("attention.max_alibi_bias", 0.0);
    if (!(spec.alibi.bias_max > 0.0)) {
      spec.alibi.bias_max = AlibiSpec().bias_max;
      spec.positions = parts.position_embedding ? PositionKind::kLearned : PositionKind::kNone;
    }
  }
  if (parts.longrope_factors) {
    spec.not_computable = "frequency factors in rope_factors_long.weight";
  }
  if (spec.positions == PositionKind::kRope) {
    read_rope(spec, parameters, graph, parts.rope_factors);
  } else if (spec.positions == PositionKind::kLearned) {
    spec.position_embedding = "position_embd.weight";
  }
}

}  // namespace regroup

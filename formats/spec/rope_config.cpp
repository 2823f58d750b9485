#include "formats/spec/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

std::optional<double> optional_number(const ConfigReader& config, std::string_view key) {
  return config.find(key) == nullptr ? std::nullopt : std::optional(config.number_or({key}, 0.0));
}

// YaRN (Peng et al., https://arxiv.org/abs/2309.00071, section 3.4), as transformers computes it.
double yarn_attention_factor(const ConfigReader& given, double factor) {
  const auto scale_of = [&](double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
  };
  if (const auto explicit_factor = optional_number(given, "attention_factor")) {
    return *explicit_factor;
  }
  const double mscale = given.number_or({"mscale"}, 0.0);
  const double all_dimensions = given.number_or({"mscale_all_dim"}, 0.0);
  return mscale != 0.0 && all_dimensions != 0.0 ? scale_of(mscale) / scale_of(all_dimensions)
                                                : scale_of(1.0);
}

// The divisors of the frequencies, one per rotating pair.
std::vector<double> pair_factors(const ConfigReader& given, std::string_view key,
                                 std::int64_t pairs) {
  const Json* found = given.find(key);
  const auto is_factor = [](const Json& factor) {
    return factor.is_number() && factor.get<double>() > 0.0;
  };
  if (found == nullptr || !found->is_array() || std::ssize(*found) != pairs ||
      !std::all_of(found->begin(), found->end(), is_factor)) {
    throw_bad_input("{}: {} must list {} positive numbers, one per rotating pair", given.where(),
                    key, pairs);
  }
  return found->get<std::vector<double>>();
}

// LongRoPE as transformers computes it.
RopeScaling read_longrope(const ModelSpec& spec, const ConfigReader& config,
                          const ConfigReader& given, const RopeDefaults& defaults,
                          std::int64_t pairs) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLongRope;
  const auto positions = static_cast<double>(spec.max_positions.value_or(0));
  // transformers prefers the model's key to the one in the scaling.
  const double in_scaling = given.number_or({"original_max_position_embeddings"}, positions);
  scaling.original_positions = config.number_or(
      {"original_max_position_embeddings"},
      defaults.original_positions > 0.0 ? defaults.original_positions : in_scaling);
  if (!(scaling.original_positions > 1.0)) {
    throw_bad_input("{}: original_max_position_embeddings is {}, LongRoPE needs more than 1",
                    config.where(), scaling.original_positions);
  }
  scaling.factor = given.number_or({"factor"}, positions / scaling.original_positions);
  const double formula =
      scaling.factor <= 1.0
          ? 1.0
          : std::sqrt(1.0 + std::log(scaling.factor) / std::log(scaling.original_positions));
  scaling.attention_factor = given.number_or({"attention_factor"}, formula);
  scaling.short_factors = pair_factors(given, "short_factor", pairs);
  scaling.long_factors = pair_factors(given, "long_factor", pairs);
  return scaling;
}

RopeScaling read_scaling(const ConfigReader& given, const std::string& type, double positions) {
  RopeScaling scaling;
  const double original = given.number_or({"original_max_position_embeddings"}, positions);
  scaling.kind = type == "linear"    ? RopeScaling::Kind::kLinear
                 : type == "dynamic" ? RopeScaling::Kind::kDynamic
                 : type == "llama3"  ? RopeScaling::Kind::kLlama3
                                     : RopeScaling::Kind::kYarn;
  const bool stretches = scaling.kind == RopeScaling::Kind::kYarn;
  scaling.factor = given.number_or({"factor"}, stretches ? positions / original : 1.0);
  scaling.original_positions = scaling.kind == RopeScaling::Kind::kDynamic ? positions : original;
  scaling.low_frequency_factor = given.number_or({"low_freq_factor"}, 1.0);
  scaling.high_frequency_factor = given.number_or({"high_freq_factor"}, 4.0);
  scaling.beta_fast = given.number_or({"beta_fast"}, 32.0);
  scaling.beta_slow = given.number_or({"beta_slow"}, 1.0);
  scaling.truncate = given.flag_or({"truncate"}, true);
  if (scaling.kind == RopeScaling::Kind::kYarn) {
    scaling.attention_factor = yarn_attention_factor(given, scaling.factor);
  }
  if (!(scaling.factor > 0.0)) {
    throw_bad_input("{}: RoPE's scaling factor is {}, a positive number is needed", given.where(),
                    scaling.factor);
  }
  return scaling;
}

// RoPE with base `theta`, scaled as `given` says. An unknown rope_type makes the model not
// computable.
RopeSpec read_one_rope(ModelSpec& spec, const ConfigReader& config, const ConfigReader& given,
                       double theta, const RopeDefaults& defaults) {
  RopeSpec rope;
  rope.theta = theta;
  const double partial =
      given.number_or({"partial_rotary_factor"},
                      config.number_or({"partial_rotary_factor", "rotary_pct"}, defaults.partial));
  const double rotary = static_cast<double>(spec.head_dim) * partial;
  const bool fits = rotary >= 0.0 && rotary <= static_cast<double>(spec.head_dim);
  // A value that does not fit may be too large to convert to an integer.
  rope.rotary_dim = fits ? static_cast<std::int64_t>(rotary) : 0;
  if (!(theta > 0.0) || !fits || rope.rotary_dim % 2 != 0) {
    throw_bad_input("{}: RoPE with theta {} on {} of {} dimensions; an even part is needed",
                    config.where(), theta, rotary, spec.head_dim);
  }
  const std::string type = given.text_or({"rope_type", "type"}, "default");
  // Phi-3's first configs call LongRoPE "su" or "yarn".
  const bool longrope = type == "longrope" || type == "su" ||
                        (type == "yarn" && given.find("short_factor") != nullptr);
  if (longrope) {
    rope.scaling = read_longrope(spec, config, given, defaults, rope.rotary_dim / 2);
  } else if (type == "linear" || type == "dynamic" || type == "llama3" || type == "yarn") {
    rope.scaling = read_scaling(given, type, static_cast<double>(spec.max_positions.value_or(0)));
  } else if (type != "default") {
    spec.not_computable = "rope_type " + printable(type);
  }
  return rope;
}

}  // namespace

void read_rope(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& defaults) {
  const ConfigReader old_style = config.object("rope_scaling");
  const ConfigReader given = old_style.empty() ? config.object("rope_parameters") : old_style;
  const double theta = given.number_or(
      {"rope_theta"}, config.number_or({"rope_theta", "rotary_emb_base"}, defaults.theta));
  spec.positions = PositionKind::kRope;
  spec.rope = read_one_rope(spec, config, given, theta, defaults);
}

void read_rope_of_windows(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& whole,
                          const RopeDefaults& in_window) {
  const ConfigReader kinds = config.object("rope_parameters");
  const ConfigReader of_whole = kinds.object("full_attention");
  const ConfigReader of_window = kinds.object("sliding_attention");
  const ConfigReader scaling = config.object("rope_scaling");
  if (!kinds.empty() && (of_whole.empty() || of_window.empty() || !scaling.empty())) {
    throw_bad_input(
        "{}: rope_parameters must have full_attention and sliding_attention, and there must be no "
        "rope_scaling",
        config.where());
  }
  const ConfigReader& given = kinds.empty() ? scaling : of_whole;
  spec.positions = PositionKind::kRope;
  spec.rope =
      read_one_rope(spec, config, given, given.number_or({"rope_theta"}, whole.theta), whole);
  spec.window_rope = read_one_rope(spec, config, of_window,
                                   of_window.number_or({"rope_theta"}, in_window.theta), in_window);
  if (!spec.sliding_window || spec.window_rope == spec.rope) {
    spec.window_rope.reset();
  }
}

}  // namespace regroup

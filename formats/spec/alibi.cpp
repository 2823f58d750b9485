#include "formats/spec/alibi.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace regroup {

std::vector<double> alibi_slopes(std::int64_t query_heads, double bias_max) {
  const auto power =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(query_heads)));
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < query_heads; ++h) {
    // The exponent in units of bias_max / power. The heads beyond the power of two lie halfway
    // between the others.
    const long double steps =
        h < power ? static_cast<long double>(h + 1) : static_cast<long double>(h - power) + 0.5L;
    // Computed in extended precision, so that the only rounding to double is correct.
    const long double exponent = -bias_max * steps / static_cast<long double>(power);
    slopes.push_back(static_cast<double>(std::exp2(exponent)));
  }
  return slopes;
}

namespace {

std::vector<double> plain_frequencies(double theta, std::int64_t rotary_dim) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < rotary_dim; i += 2) {
    frequencies.push_back(
        std::pow(theta, -static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  return frequencies;
}

// "Dynamic NTK": the base grows with the length when the length exceeds the model's positions.
std::vector<double> dynamic_frequencies(const RopeSpec& spec, std::int64_t length) {
  const auto dimensions = static_cast<double>(spec.rotary_dim);
  const double stretch = static_cast<double>(length) / spec.scaling.original_positions;
  if (stretch <= 1.0) {
    return plain_frequencies(spec.theta, spec.rotary_dim);
  }
  const double factor = spec.scaling.factor;
  const double growth =
      std::pow(factor * stretch - (factor - 1.0), dimensions / (dimensions - 2.0));
  return plain_frequencies(spec.theta * growth, spec.rotary_dim);
}

// Llama 3.1 divides the frequencies of long wavelengths by the factor, keeps those of short ones,
// and interpolates between them.
double llama3_frequency(const RopeScaling& scaling, double plain) {
  const double low = scaling.low_frequency_factor;
  const double turns = plain * scaling.original_positions / (2.0 * std::numbers::pi);
  const double kept = std::clamp((turns - low) / (scaling.high_frequency_factor - low), 0.0, 1.0);
  return plain * ((1.0 - kept) / scaling.factor + kept);
}

// YaRN, "NTK by parts" (Peng et al., https://arxiv.org/abs/2309.00071, section 3.2).
void scale_by_parts(const RopeSpec& spec, std::vector<double>& frequencies) {
  const RopeScaling& scaling = spec.scaling;
  const auto dimensions = static_cast<double>(spec.rotary_dim);
  // The dimension whose frequency makes `turns` turns over the original positions.
  const auto dimension_of = [&](double turns) {
    return dimensions * std::log(scaling.original_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(spec.theta));
  };
  double low = dimension_of(scaling.beta_fast);
  double high = dimension_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dimensions - 1.0);
  high += low == high ? 0.001 : 0.0;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= divided / scaling.factor + (1.0 - divided);
  }
}

// LongRoPE (Ding et al., https://arxiv.org/abs/2402.13753): a divisor for each pair, found by
// search.
void divide_each(const RopeScaling& scaling, std::int64_t length,
                 std::vector<double>& frequencies) {
  const bool is_long = static_cast<double>(length) > scaling.original_positions;
  const std::vector<double>& factors = is_long ? scaling.long_factors : scaling.short_factors;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] /= factors.at(i);
  }
}

}  // namespace

std::vector<double> rope_frequencies(const RopeSpec& spec, std::int64_t length) {
  std::vector<double> frequencies = plain_frequencies(spec.theta, spec.rotary_dim);
  switch (spec.scaling.kind) {
    case RopeScaling::Kind::kNone: break;
    case RopeScaling::Kind::kLinear:
      for (double& frequency : frequencies) {
        frequency /= spec.scaling.factor;
      }
      break;
    case RopeScaling::Kind::kDynamic: return dynamic_frequencies(spec, length);
    case RopeScaling::Kind::kLlama3:
      for (double& frequency : frequencies) {
        frequency = llama3_frequency(spec.scaling, frequency);
      }
      break;
    case RopeScaling::Kind::kYarn: scale_by_parts(spec, frequencies); break;
    case RopeScaling::Kind::kLongRope: divide_each(spec.scaling, length, frequencies); break;
  }
  return frequencies;
}

}  // namespace regroup

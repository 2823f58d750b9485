// Fresh models: random weights for a config, to pretrain from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "formats/dtype/dtype.h"
#include "formats/spec/model_spec.h"
#include "uptrain/model/parameters.h"

namespace regroup {

constexpr double kUsualDeviation = 0.02;

/// Weights as GPT-2 begins with (Radford et al. 2019, section 2.3): normal with standard deviation
/// `deviation`, that of the projections into the residual stream divided by √(2·layers); norms 1,
/// biases 0. Where scores are not divided by √d, queries begin smaller in its place, as T5's do
/// (Raffel et al. 2020, https://arxiv.org/abs/1910.10683). fp32, on the CPU, a pure function of the
/// arguments.
Parameters initialise_parameters(const ModelSpec& spec, std::uint64_t seed,
                                 double deviation = kUsualDeviation);

/// A config.json, and what errors call it.
struct NamedConfig {
  std::string text;
  std::string name;
};

/// Writes a model directory at `destination` with such weights, stored as `dtype`, and the config
/// as it is. Their deviation is the config's initializer_range, where it has one. Throws kBadInput
/// for a config of no known family, or of a model that cannot be computed; kUsage if `destination`
/// exists.
void write_new_model(const NamedConfig& config, std::uint64_t seed, DType dtype,
                     const std::filesystem::path& destination);

}  // namespace regroup

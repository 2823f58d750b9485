// Random initialisation of a model from a config, for pretraining.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "formats/dtype/dtype.h"
#include "formats/spec/model_spec.h"
#include "uptrain/model/parameters.h"

namespace regroup {

constexpr double kUsualDeviation = 0.02;

/// GPT-2's initialisation (Radford et al. 2019, section 2.3): normal with standard deviation
/// `deviation`, divided by √(2·layers) for projections into the residual stream; norms 1, biases 0.
/// If scores are not divided by √d, queries are initialised smaller by that factor, as in T5
/// (Raffel et al. 2020, https://arxiv.org/abs/1910.10683). fp32, on the CPU; a pure function of the
/// arguments.
Parameters initialise_parameters(const ModelSpec& spec, std::uint64_t seed,
                                 double deviation = kUsualDeviation);

/// A config.json and its name in error messages.
struct NamedConfig {
  std::string text;
  std::string name;
};

/// Writes a model directory at `destination` with such weights, stored as `dtype`, and the
/// unchanged config. `deviation` is the config's initializer_range if it has one. Throws kBadInput
/// for a config of an unknown family or of a model that cannot be computed; kUsage if `destination`
/// exists.
void write_new_model(const NamedConfig& config, std::uint64_t seed, DType dtype,
                     const std::filesystem::path& destination);

}  // namespace regroup

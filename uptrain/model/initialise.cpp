#include "uptrain/model/initialise.h"

#include <cmath>
#include <set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/config/config_reader.h"
#include "formats/families/family.h"
#include "uptrain/model/save_parameters.h"

namespace regroup {
namespace {

// The names that are not initialised with plain normal noise.
struct Roles {
  std::set<std::string> norms;
  std::set<std::string> biases;
  std::set<std::string> residual;  // weights that write into the residual stream
  std::set<std::string> queries;   // weights that make only queries

  void add(const NormTensors& norm) {
    norms.insert(norm.weight);
    biases.insert(norm.bias);
  }
  void add(const LinearTensors& linear) { biases.insert(linear.bias); }
  void add(const AttentionLayout& attention) {
    for (const LinearTensors* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) {
      add(*linear);
    }
    for (const auto* all : {&attention.q_norms, &attention.k_norms}) {
      for (const NormTensors& norm : *all) {
        add(norm);
      }
    }
    residual.insert(attention.o.weight);
    if (attention.q.weight != attention.k.weight) {
      queries.insert(attention.q.weight);
    }
  }
  void add(const LayerTensors& layer) {
    for (const NormTensors* norm : layer.norms()) {
      add(*norm);
    }
    add(layer.attention);
    add(layer.cross_attention);
    for (const LinearTensors* linear : {&layer.gate, &layer.up, &layer.down}) {
      add(*linear);
    }
    residual.insert(layer.down.weight);
    residual.insert(layer.experts.down.begin(), layer.experts.down.end());
  }
};

Roles roles_in(const ModelSpec& spec) {
  Roles roles;
  for (const NormTensors* norm : {&spec.embedding_norm, &spec.encoder_embedding_norm,
                                  &spec.encoder_final_norm, &spec.final_norm, &spec.head_norm}) {
    roles.add(*norm);
  }
  roles.add(spec.head_transform);
  roles.biases.insert(spec.lm_head_bias);
  for (const auto* stack : {&spec.encoder_layers, &spec.layers}) {
    for (const LayerTensors& layer : *stack) {
      roles.add(layer);
    }
  }
  return roles;
}

// The factor that compensates for a score scale other than 1/√d.
double query_factor(const ModelSpec& spec) {
  const double usual = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  return usual / spec.attention_scale.value_or(usual);
}

double deviation_in(const ConfigReader& config) {
  const double deviation = config.number_or({"initializer_range"}, kUsualDeviation);
  if (!(deviation > 0.0)) {
    throw_bad_input("{}: initializer_range is {}, allowed is more than 0", config.where(),
                    deviation);
  }
  return deviation;
}

// Converts the numbers to find those that overflow in that type.
void check_fits(const Parameters& parameters, DType dtype, const NamedConfig& config,
                double deviation) {
  for (const Parameters::Entry& entry : parameters.entries()) {
    if (!entry.value.to(scalar_type_of(dtype)).isfinite().all().item<bool>()) {
      throw_bad_input(
          "{}: weights with a standard deviation of {} (initializer_range) do not fit into {}: "
          "tensor {} would hold NaN or infinities; {} is usual",
          config.name, deviation, name_of(dtype), printable(entry.name), kUsualDeviation);
    }
  }
}

}  // namespace

Parameters initialise_parameters(const ModelSpec& spec, std::uint64_t seed, double deviation) {
  const Roles roles = roles_in(spec);
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(spec.layer_count()));
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (roles.norms.contains(tensor.name)) {
      entries.push_back(
          {tensor.name, at::full(tensor.shape, 1.0 - spec.norm_weight_offset, at::kFloat)});
    } else if (roles.biases.contains(tensor.name)) {
      entries.push_back({tensor.name, at::zeros(tensor.shape, at::kFloat)});
    } else {
      const double own = roles.residual.contains(tensor.name)  ? residual
                         : roles.queries.contains(tensor.name) ? deviation * query_factor(spec)
                                                               : deviation;
      entries.push_back(
          {tensor.name, at::empty(tensor.shape, at::kFloat).normal_(0.0, own, generator)});
    }
  }
  return Parameters(std::move(entries));
}

void write_new_model(const NamedConfig& config, std::uint64_t seed, DType dtype,
                     const std::filesystem::path& destination) {
  const Json json = parse_json_object(config.text, config.name);
  const ModelSpec spec = describe_model(json, Checkpoint({}), config.name);
  if (!spec.not_computable.empty()) {
    throw_bad_input("{}: this model cannot be computed: {}", config.name,
                    printable(spec.not_computable));
  }
  const double deviation = deviation_in(ConfigReader(json, config.name));
  if (!spec.whole_model.empty()) {
    throw_bad_input("{}: describes a {} model, of which only the language model could be made",
                    config.name, printable(spec.whole_model));
  }
  StagedDirectory staged(destination);
  write_text(staged.path() / "config.json", config.text);
  const Parameters parameters = initialise_parameters(spec, seed, deviation);
  check_fits(parameters, dtype, config, deviation);
  save_new_parameters(parameters, dtype, staged.path());
  staged.publish();
}

}  // namespace regroup

#include "uptrain/initialise.h"

#include <cmath>
#include <set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "formats/error.h"
#include "formats/families/family.h"
#include "formats/file.h"
#include "formats/printable.h"
#include "formats/staged_directory.h"

namespace regroup {
namespace {

constexpr double kDeviation = 0.02;

// The names that do not begin as plain normal noise.
struct Roles {
  std::set<std::string> norms;
  std::set<std::string> biases;
  std::set<std::string> residual;  // weights that write into the residual stream

  void add(const NormTensors& norm) {
    norms.insert(norm.weight);
    biases.insert(norm.bias);
  }
  void add(const LinearTensors& linear) { biases.insert(linear.bias); }
};

Roles roles_in(const ModelSpec& spec) {
  Roles roles;
  roles.add(spec.embedding_norm);
  roles.add(spec.final_norm);
  roles.biases.insert(spec.lm_head_bias);
  for (const LayerTensors& layer : spec.layers) {
    roles.add(layer.attention_norm);
    roles.add(layer.mlp_norm);
    const AttentionLayout& attention = layer.attention;
    for (const LinearTensors* linear : {&attention.q, &attention.k, &attention.v, &attention.o,
                                        &layer.gate, &layer.up, &layer.down}) {
      roles.add(*linear);
    }
    for (const auto* norms : {&attention.q_norms, &attention.k_norms}) {
      for (const NormTensors& norm : *norms) {
        roles.add(norm);
      }
    }
    roles.residual.insert({attention.o.weight, layer.down.weight});
  }
  return roles;
}

}  // namespace

Parameters initialise_parameters(const ModelSpec& spec, std::uint64_t seed) {
  const Roles roles = roles_in(spec);
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(spec.layer_count()));
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (roles.norms.contains(tensor.name)) {
      entries.push_back(
          {tensor.name, at::full(tensor.shape, 1.0 - spec.norm_weight_offset, at::kFloat)});
    } else if (roles.biases.contains(tensor.name)) {
      entries.push_back({tensor.name, at::zeros(tensor.shape, at::kFloat)});
    } else {
      const double deviation = roles.residual.contains(tensor.name) ? residual : kDeviation;
      entries.push_back(
          {tensor.name, at::empty(tensor.shape, at::kFloat).normal_(0.0, deviation, generator)});
    }
  }
  return Parameters(std::move(entries));
}

void write_new_model(const std::string& config_text, std::uint64_t seed, DType dtype,
                     const std::filesystem::path& destination) {
  const std::string where = printable((destination / "config.json").string(), 0);
  const Json config = parse_json_object(config_text, where);
  const ModelSpec spec = describe_model(config, Checkpoint({}), where);
  StagedDirectory staged(destination);
  write_text(staged.path() / "config.json", config_text);
  save_new_parameters(initialise_parameters(spec, seed), dtype, staged.path());
  staged.publish();
}

}  // namespace regroup

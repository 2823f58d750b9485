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
  }
  void add(const LayerTensors& layer) {
    for (const NormTensors* norm : {&layer.attention_norm, &layer.cross_norm, &layer.mlp_norm}) {
      add(*norm);
    }
    add(layer.attention);
    add(layer.cross_attention);
    for (const LinearTensors* linear : {&layer.gate, &layer.up, &layer.down}) {
      add(*linear);
    }
    residual.insert(layer.down.weight);
  }
};

Roles roles_in(const ModelSpec& spec) {
  Roles roles;
  for (const NormTensors* norm :
       {&spec.embedding_norm, &spec.encoder_final_norm, &spec.final_norm, &spec.head_norm}) {
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

void write_new_model(const NamedConfig& config, std::uint64_t seed, DType dtype,
                     const std::filesystem::path& destination) {
  const ModelSpec spec =
      describe_model(parse_json_object(config.text, config.name), Checkpoint({}), config.name);
  if (!spec.not_computable.empty()) {
    throw_bad_input("{}: this model cannot be computed: {}", config.name,
                    printable(spec.not_computable));
  }
  StagedDirectory staged(destination);
  write_text(staged.path() / "config.json", config.text);
  save_new_parameters(initialise_parameters(spec, seed), dtype, staged.path());
  staged.publish();
}

}  // namespace regroup

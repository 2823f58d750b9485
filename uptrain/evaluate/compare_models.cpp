#include "uptrain/evaluate/compare_models.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randint.h>

#include "converter/execute/execute_plan.h"
#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/families/family.h"
#include "uptrain/model/measurements.h"
#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"

namespace regroup {
namespace {

constexpr std::int64_t kRunParameters = std::int64_t{1} << 28;  // 1 GiB of fp32
constexpr std::int64_t kTokens = 48;

// The model with only layers [begin, end).
ModelSpec part_of(const ModelSpec& spec, std::size_t begin, std::size_t end) {
  const auto cut = [&](auto& per_layer) {
    per_layer = {per_layer.begin() + static_cast<std::ptrdiff_t>(begin),
                 per_layer.begin() + static_cast<std::ptrdiff_t>(end)};
  };
  ModelSpec part = spec;
  cut(part.layers);
  cut(part.kv_heads);
  if (part.alibi.slopes.size() > 1) {
    cut(part.alibi.slopes);
  }
  return part;
}

// These tensors as the plan would write them.
Parameters planned_parameters(const ConversionPlan& plan, const Model& source,
                              const ModelSpec& part) {
  std::unordered_map<std::string_view, const TensorStep*> steps;
  for (const TensorStep& step : plan.steps) {
    steps.emplace(step.output.name, &step);
  }
  AttentionPooler pooler = pooler_of(plan, source.checkpoint);
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& tensor : expected_tensors(part)) {
    const TensorStep& step = *steps.at(tensor.name);
    entries.push_back(
        {tensor.name, tensor_of_numbers(make_tensor(step, plan, source.checkpoint, pooler),
                                        step.output.dtype, step.output.shape, at::kFloat)});
    const std::string& from = step.moves.empty() ? step.copy_of : step.moves.front().source;
    if (const TensorInfo* stored = source.checkpoint.find(from)) {
      check_finite(entries.back().value, source.checkpoint, *stored);
    }
  }
  return Parameters(std::move(entries));
}

at::Tensor logits_of(const ModelSpec& spec, const Parameters& parameters,
                     const at::Tensor& tokens) {
  const Transformer model(spec, parameters);
  return model.logits(model.hidden_states(tokens)).to(at::kDouble);
}

std::size_t layers_per_run(const ModelSpec& spec) {
  std::int64_t parameters = 0;
  for (const ExpectedTensor& tensor : expected_tensors(part_of(spec, 0, 1))) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) {
      elements *= size;
    }
    parameters += elements;
  }
  return static_cast<std::size_t>(std::max<std::int64_t>(1, kRunParameters / parameters));
}

// Compares `reference` with a model of `result`'s form whose parameters `parameters_of` gives for a
// part of it.
LogitComparison compare_parts(const ConversionPlan& reference, const Model& source,
                              const ModelSpec& result,
                              const std::function<Parameters(const ModelSpec&)>& parameters_of,
                              const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  const ModelSpec& spec = reference.target;
  const std::int64_t length = std::min(kTokens, spec.max_positions.value_or(kTokens));
  const at::Tensor tokens =
      at::randint(0, spec.vocab_size, {1, length}, at::detail::createCPUGenerator(1), at::kLong);
  const std::size_t layers = spec.layers.size();
  const std::size_t run = layers_per_run(spec);
  LogitComparison comparison;
  for (std::size_t begin = 0; begin < layers; begin += run) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    const std::size_t end = std::min(layers, begin + run);
    const ModelSpec part = part_of(spec, begin, end);
    const ModelSpec other = part_of(result, begin, end);
    const at::Tensor expected =
        logits_of(part, planned_parameters(reference, source, part), tokens);
    const at::Tensor found = logits_of(other, parameters_of(other), tokens);
    comparison.largest_difference =
        larger(comparison.largest_difference, (expected - found).abs().max().item().toDouble());
    comparison.largest_logit =
        larger(comparison.largest_logit, expected.abs().max().item().toDouble());
  }
  return comparison;
}

Parameters stored_parameters(const ModelSpec& part, const Model& model) {
  return load_parameters(part, model.checkpoint, at::kFloat, at::kCPU);
}

// The largest ‖stored − planned‖ / ‖planned‖; 0 / 0 counts as 0.
double largest_rounding(const Parameters& planned, const Parameters& stored) {
  double largest = 0.0;
  for (const Parameters::Entry& entry : planned.entries()) {
    const at::Tensor exact = entry.value.to(at::kDouble);
    const double difference = (stored.at(entry.name) - exact).norm().item().toDouble();
    largest =
        difference == 0.0 ? largest : larger(largest, difference / exact.norm().item().toDouble());
  }
  return largest;
}

}  // namespace

LogitComparison compare_logits(const ConversionPlan& reference, const Model& source,
                               const Model& result, const std::atomic<bool>& stop) {
  return compare_parts(
      reference, source, result.spec,
      [&](const ModelSpec& part) { return stored_parameters(part, result); }, stop);
}

FormComparison compare_forms(const ConversionPlan& reference, const ConversionPlan& form,
                             const Model& source, const Model& result,
                             const std::atomic<bool>& stop) {
  FormComparison found;
  found.logits = compare_parts(
      reference, source, result.spec,
      [&](const ModelSpec& part) {
        Parameters planned = planned_parameters(form, source, part);
        found.largest_rounding = larger(found.largest_rounding,
                                        largest_rounding(planned, stored_parameters(part, result)));
        return planned;
      },
      stop);
  return found;
}

}  // namespace regroup

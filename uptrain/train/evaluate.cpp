#include "uptrain/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>

#include "converter/convert/execute_plan.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/families/family.h"
#include "formats/tensors/checkpoint_writer.h"
#include "uptrain/model/measurements.h"
#include "uptrain/model/parameters.h"
#include "uptrain/train/metrics.h"

namespace regroup {

namespace {

void check_settings(const EvaluationSettings& settings) {
  if (settings.context < 1 || settings.batch < 1 || settings.max_tokens.value_or(1) < 1) {
    throw_usage("context, batch and max tokens must be 1 or more");
  }
}

Task task_of(const EvaluationSettings& settings, const ModelSpec& spec) {
  check_settings(settings);
  return make_task(settings.task, spec, objective_of(spec), settings.context);
}

// Fewer predictions than a window has are asked of a shorter window, so that no more is read.
EvaluationSettings fitted(EvaluationSettings settings, const Task& task) {
  const std::int64_t wanted = settings.max_tokens.value_or(std::numeric_limits<int64_t>::max());
  if (!hides_spans(task.objective) && predictions_in(task, settings.context) > wanted) {
    const std::int64_t least = task.objective == Objective::kContinuation ? 2 : 1;
    settings.context = *std::ranges::lower_bound(
        std::views::iota(least, settings.context), wanted, {},
        [&](std::int64_t context) { return predictions_in(task, context); });
  }
  return settings;
}

// Reads windows of `width` tokens: those of `documents`, or windows that begin `context` tokens
// apart. int64 [count, width].
at::Tensor read_windows(const TokenFile& file, const std::optional<DocumentWindows>& documents,
                        std::int64_t first, std::int64_t count, std::int64_t context,
                        std::int64_t width) {
  return token_rows(count, width, [&](std::int64_t row, std::span<std::int64_t> ids) {
    if (documents) {
      documents->read(file, first + row, ids);
    } else {
      file.read((first + row) * context, ids);
    }
  });
}

// The number of windows that max_tokens allows.
std::int64_t count_windows(const DocumentWindows& documents, const EvaluationSettings& settings) {
  std::int64_t windows = 0, asked = 0;
  while (windows < documents.size() && asked < settings.max_tokens.value_or(asked + 1)) {
    asked += documents.predictions(windows++);
  }
  return windows;
}

// The number of windows of `width` tokens, `context` apart, with up to max_tokens predicted tokens.
std::int64_t count_windows(const TokenFile& file, const EvaluationSettings& settings,
                           std::int64_t width, std::int64_t predictions) {
  if (file.size() < width) {
    throw_bad_input(
        "{}: {} tokens, a context of {} needs {}: give more text, or a smaller --context",
        file.name(), fmt::group_digits(file.size()), fmt::group_digits(settings.context),
        fmt::group_digits(width));
  }
  const std::int64_t all = (file.size() - width) / settings.context + 1;
  const std::int64_t wanted = settings.max_tokens.value_or(all * predictions);
  return std::min(all, (wanted - 1) / predictions + 1);
}

// What is evaluated of a file.
struct EvaluatedText {
  Task task;
  EvaluationSettings settings;  // fitted
  std::optional<DocumentWindows> documents;
  std::int64_t windows = 0;
};

EvaluatedText evaluated_text(const TokenFile& file, const EvaluationSettings& asked,
                             const ModelSpec& spec) {
  EvaluatedText text;
  text.task = task_of(asked, spec);
  text.settings = fitted(asked, text.task);
  check_documents(text.settings.documents, text.task);
  const std::int64_t context = text.settings.context;
  if (text.settings.documents.separate) {
    text.documents.emplace(file, context, text.settings.documents.mark);
    text.windows = count_windows(*text.documents, text.settings);
  } else {
    text.windows = count_windows(file, text.settings, window_width(text.task.objective, context),
                                 predictions_in(text.task, context));
  }
  return text;
}

}  // namespace

std::int64_t evaluation_context(const EvaluationSettings& settings, const ModelSpec& spec) {
  return fitted(settings, task_of(settings, spec)).context;
}

std::int64_t evaluation_windows(const TokenFile& file, const EvaluationSettings& settings,
                                const ModelSpec& spec) {
  return evaluated_text(file, settings, spec).windows;
}

std::int64_t logits_windows(const TokenFile& file, const EvaluationSettings& settings,
                            const ModelSpec& spec) {
  check_settings(settings);
  if (spec.has_encoder() && settings.context < 2) {
    throw_usage("context is {}, an encoder-decoder needs 2 tokens or more", settings.context);
  }
  return count_windows(file, settings, settings.context, settings.context);
}

Evaluation evaluate(const Transformer& model, const TokenFile& file,
                    const EvaluationSettings& asked, const CountProgress& progress,
                    const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  // Passes that ranks have in common end only together.
  const StopScope scope(asked.any_stops ? nullptr : &stop);
  const auto [task, settings, documents, windows] = evaluated_text(file, asked, model.spec());
  const std::int64_t width = window_width(task.objective, settings.context);
  file.check_vocabulary(model.spec().vocab_size);
  Evaluation result;
  double sum = 0.0;
  const std::int64_t round = settings.shares * settings.batch;  // windows of all shares
  for (std::int64_t begin = 0; begin < windows; begin += round) {
    const std::int64_t own = begin + settings.share * settings.batch;
    if (own >= windows && !settings.any_stops) {
      break;
    }
    if (settings.any_stops ? settings.any_stops(stop) : stop.load()) {
      throw Error(ErrorKind::kInterrupted, "evaluation was stopped");
    }
    const std::int64_t first = own < windows ? own : begin;
    const std::int64_t count = std::min(settings.batch, windows - first);
    const at::Tensor ids = read_windows(file, documents, first, count, settings.context, width);
    const auto [hidden, targets] =
        predict(model, part_of_windows(ids, model.sequence_part()), first, task);
    const double loss = targets.numel() > 0 ? model.loss(hidden, targets).item<double>() : 0.0;
    if (own < windows) {
      sum += loss * static_cast<double>(targets.numel());
      result.tokens += targets.numel();
      call_if_given(progress, first + count, windows);
    }
  }
  check_stop();
  result.loss = sum / static_cast<double>(std::max<std::int64_t>(1, result.tokens));
  result.perplexity = std::exp(result.loss);
  return result;
}

void write_logits(const Transformer& model, const TokenFile& file,
                  const EvaluationSettings& settings, const std::filesystem::path& path,
                  const CountProgress& progress, const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  const StopScope scope(&stop);
  const std::int64_t windows = logits_windows(file, settings, model.spec());
  const std::int64_t positions =
      model.spec().has_encoder()
          ? predictions_in({.objective = Objective::kContinuation}, settings.context)
          : settings.context;
  file.check_vocabulary(model.spec().vocab_size);
  StagedDirectory staged(path);
  const OutputTensor output{"logits", DType::kF32, {windows, positions, model.lm_head().size(0)}};
  SafetensorsWriter writer(staged.path(), std::span(&output, 1), {},
                           std::numeric_limits<std::uint64_t>::max());
  writer.write_parts(output.name, [&](const TensorSink& sink) {
    for (std::int64_t first = 0; first < windows; first += settings.batch) {
      throw_if_stopped(stop, "evaluation was stopped");
      const std::int64_t count = std::min(settings.batch, windows - first);
      const at::Tensor ids =
          read_windows(file, {}, first, count, settings.context, settings.context);
      const at::Tensor logits = window_logits(model, ids.to(model.device()));
      const at::Tensor stored = logits.to(at::kCPU, at::kFloat).contiguous();
      if (!stored.isfinite().all().item<bool>()) {
        throw_bad_input(
            "{}: windows {} to {}: NaN or infinity among the logits; nothing was written",
            printable_path(file.path()), first, first + count - 1);
      }
      sink(bytes_of(stored));
      call_if_given(progress, first + count, windows);
    }
  });
  check_stop();
  writer.finish();
  staged.publish_file("model.safetensors");
}

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
  AttentionPooler pooler(plan, source.checkpoint);
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
  const auto run = static_cast<std::size_t>(
      std::max<std::int64_t>(1, kRunParameters / count_parameters(part_of(spec, 0, 1))));
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

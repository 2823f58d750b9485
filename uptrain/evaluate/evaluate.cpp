#include "uptrain/evaluate/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <ranges>
#include <span>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"
#include "uptrain/evaluate/logits_file.h"

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
  const bool any_length =
      task.objective != Objective::kSpanCorruption && task.objective != Objective::kTextInfilling;
  if (any_length && predictions_in(task, settings.context) > wanted) {
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
  at::Tensor ids = at::empty({count, width}, at::kLong);
  const std::span<std::int64_t> all(ids.mutable_data_ptr<std::int64_t>(), count * width);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto window = all.subspan(i * width, width);
    if (documents) {
      documents->read(file, first + i, window);
    } else {
      file.read((first + i) * context, window);
    }
  }
  return ids;
}

std::optional<DocumentWindows> document_windows(const TokenFile& file,
                                                const EvaluationSettings& settings) {
  return settings.documents.separate
             ? std::optional<DocumentWindows>(std::in_place, file, settings.context,
                                              settings.documents.mark)
             : std::nullopt;
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
    throw_bad_input("{}: {} tokens, a context of {} needs {}", printable(file.path().string(), 0),
                    file.size(), settings.context, width);
  }
  const std::int64_t all = (file.size() - width) / settings.context + 1;
  const std::int64_t wanted = settings.max_tokens.value_or(all * predictions);
  return std::min(all, (wanted - 1) / predictions + 1);
}

}  // namespace

std::int64_t evaluation_context(const EvaluationSettings& settings, const ModelSpec& spec) {
  return fitted(settings, task_of(settings, spec)).context;
}

std::int64_t evaluation_windows(const TokenFile& file, const EvaluationSettings& asked,
                                const ModelSpec& spec) {
  const Task task = task_of(asked, spec);
  const EvaluationSettings settings = fitted(asked, task);
  check_documents(settings.documents, task);
  if (const auto documents = document_windows(file, settings)) {
    return count_windows(*documents, settings);
  }
  return count_windows(file, settings, window_width(task.objective, settings.context),
                       predictions_in(task, settings.context));
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
                    const EvaluationSettings& asked, const EvaluationProgress& progress,
                    const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  // Passes that ranks have in common end only together.
  const StopScope scope(asked.any_stops ? nullptr : &stop);
  const std::int64_t windows = evaluation_windows(file, asked, model.spec());
  const Task task = task_of(asked, model.spec());
  const EvaluationSettings settings = fitted(asked, task);
  const std::int64_t width = window_width(task.objective, settings.context);
  const auto documents = document_windows(file, settings);
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
                  const EvaluationProgress& progress, const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  const StopScope scope(&stop);
  const std::int64_t windows = logits_windows(file, settings, model.spec());
  const std::int64_t positions =
      model.spec().has_encoder()
          ? predictions_in({.objective = Objective::kContinuation}, settings.context)
          : settings.context;
  file.check_vocabulary(model.spec().vocab_size);
  LogitsFile pending(path, windows, positions, model.lm_head().size(0));
  for (std::int64_t first = 0; first < windows; first += settings.batch) {
    throw_if_stopped(stop, "evaluation was stopped");
    const std::int64_t count = std::min(settings.batch, windows - first);
    const at::Tensor ids = read_windows(file, {}, first, count, settings.context, settings.context);
    pending.append(window_logits(model, ids.to(model.device())), file.path(), first);
    call_if_given(progress, first + count, windows);
  }
  check_stop();
  pending.publish();
}

}  // namespace regroup

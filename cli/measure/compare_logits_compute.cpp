#include "cli/measure/compare_logits.h"

#include <algorithm>

#include "cli/measure/data_origin.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "converter/convert/equivalence.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/family.h"
#include "formats/model/serving_cost.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"
#include "uptrain/train/evaluate.h"
#include "uptrain/train/text_quality.h"

namespace regroup {
namespace {

// Differences of logits as a share of the largest one. Moved numbers only change the order of sums;
// rounding errors of weights grow on their way to the logits.
constexpr double kReordered = 1e-4;
constexpr double kRounded = 0.05;

// A tensor's rounding error as a share of it. Q8_0, the coarsest, has about 0.006.
constexpr double kTensorRounding = 0.02;

// The request for the reference: the source's architecture, with means rounded to the requested
// dtype. GGUF stores some tensors in F32 whatever the dtype, so for GGUF the reference has the
// source's dtype or F32.
ConversionRequest reference_request(ConversionRequest request, const ConversionPlan& plan) {
  request.target = "same";
  request.container = std::nullopt;
  if (request.dtype && *request.dtype != DType::kF32 &&
      (is_block_type(*request.dtype) || plan.container == Container::kGguf)) {
    request.dtype = std::nullopt;
  }
  return request;
}

// Whether numbers of this tensor may be rounded differently from the reference: tensors that are
// folded or normalised and stored in half precision, quantised tensors, and means stored in another
// dtype.
bool rounds_differently(const TensorStep& step, const ConversionRequest& reference,
                        const Checkpoint& source) {
  const DType dtype = step.output.dtype;
  const bool narrow = dtype == DType::kF16 || dtype == DType::kBF16 || is_block_type(dtype);
  if (step.unchanged() || step.moves.empty()) {
    return false;
  }
  if (step.fold || step.add != 0.0 || step.unit_rows) {
    return narrow;
  }
  const bool pools = std::ranges::any_of(step.moves, &HeadMove::pools);
  const DType before = source.at(step.moves.front().source).dtype;
  return (narrow || pools) && dtype != reference.dtype.value_or(before);
}

// Whether numbers of any tensor may be.
bool rounds_differently(const ConversionPlan& plan, const ConversionRequest& reference,
                        const Checkpoint& source) {
  return std::ranges::any_of(plan.steps, [&](const TensorStep& step) {
    return rounds_differently(step, reference, source);
  });
}

// Whether the requested dtype, to which the reference is rounded as well, has fewer digits than the
// source's.
bool loses_digits(const ConversionPlan& plan, const ConversionRequest& reference,
                  const Checkpoint& source) {
  return reference.dtype && bits_of(*reference.dtype) < 32 &&
         std::ranges::any_of(
             plan.steps,
             [&](const TensorStep& step) {
               return !step.moves.empty() && step.output.dtype == *reference.dtype &&
                      source.at(step.moves.front().source).dtype != *reference.dtype;
             });
}

// Conversion to GGUF has already reported where llama.cpp computes something else. These
// differences are ignored here, in both directions.
Model as_source_computes(Model result, const Model& source) {
  if (result.convention == Convention::kGguf || source.convention == Convention::kGguf) {
    result.spec.activation = source.spec.activation;
    use_windows_of(result.spec, source.spec);
  }
  return result;
}

Model opened(const std::filesystem::path& result, const Model& source) {
  return as_source_computes(open_computable_model(result), source);
}

// The largest difference of logits before weights are rounded, if it and the rounding of each
// tensor are small: then the result has the right form, and rounding changes its logits by more
// than usual. It does so where experts are chosen.
std::optional<double> difference_of_forms(const Model& source, ConversionRequest request,
                                          ConversionRequest reference,
                                          const std::filesystem::path& result) {
  request.dtype = DType::kF32;
  reference.dtype = DType::kF32;
  FormComparison found;
  with_torch_errors([&] {
    found = compare_forms(plan_reference(source, reference), plan_reference(source, request),
                          source, opened(result, source), interrupt_requested());
  });
  const double allowed = kReordered * std::max(1.0, found.logits.largest_logit);
  return found.logits.largest_difference <= allowed && found.largest_rounding <= kTensorRounding
             ? std::optional(found.logits.largest_difference)
             : std::nullopt;
}

WindowSettings settings_of(const LogitsOptions& options, const Model& source, const Model& result) {
  WindowSettings settings;
  settings.context = options.context > 0
                         ? options.context
                         : usual_context(source, usual_context(result, settings.context));
  settings.max_tokens = options.max_tokens;
  return settings;
}

Batches windows_of(const LogitsOptions& options, const Model& source, const Model& result) {
  const WindowSettings settings = settings_of(options, source, result);
  if (options.data.empty()) {
    return random_windows(source.spec.vocab_size, settings);
  }
  const TokenFile data = TokenFile::open(options.data);
  data.check_vocabulary(source.spec.vocab_size);
  return read_windows(data, settings);
}

}  // namespace

std::optional<OutputComparison> compare_with_source(const Model& source,
                                                    const ConversionRequest& request,
                                                    const ConversionPlan& plan,
                                                    const std::filesystem::path& result,
                                                    const Console& console) {
  const ConversionRequest same = reference_request(request, plan);
  const ConversionPlan reference = plan_reference(source, same);
  // The result may use a feature that cannot be computed, such as RoPE factors in a GGUF file.
  if (!reference.target.not_computable.empty() || !plan.target.not_computable.empty() ||
      !open_model(result).spec.not_computable.empty()) {
    console.note("note: this model cannot be computed, so the result was not compared");
    return std::nullopt;
  }
  OutputComparison comparison;
  const Progress progress(console, "compare logits", 0, "steps");
  const auto compare = [&](const ConversionPlan& expected) {
    with_torch_errors([&] {
      const LogitComparison found =
          compare_logits(expected, source, opened(result, source), interrupt_requested());
      comparison.largest_difference = found.largest_difference;
      comparison.largest_output = found.largest_logit;
    });
  };
  compare(reference);
  const bool rounded = rounds_differently(plan, same, source.checkpoint);
  const double allowed =
      (rounded ? kRounded : kReordered) * std::max(1.0, comparison.largest_output);
  if (!(comparison.largest_difference <= allowed)) {
    comparison.without_rounding =
        rounded ? difference_of_forms(source, request, same, result) : std::nullopt;
    if (!comparison.without_rounding) {
      throw Error(ErrorKind::kDifference,
                  fmt::format("written as {}, the model computes other logits: they differ by up "
                              "to {:.3g}, {:.3g} is allowed; the result was removed",
                              plan.target.architecture, comparison.largest_difference, allowed));
    }
  } else if (loses_digits(plan, same, source.checkpoint)) {
    comparison.without_rounding = comparison.largest_difference;
    ConversionRequest exact = same;
    exact.dtype = std::nullopt;
    compare(plan_conversion(source, exact));
  } else if (rounded) {  // the reference is not rounded to block types
    comparison.without_rounding = difference_of_forms(source, request, same, result);
  }
  return comparison;
}

void check_logits_options(const LogitsOptions& options, const Model& source, const Model& result) {
  for (const Model* model : {&source, &result}) {
    if (!model->spec.not_computable.empty()) {
      throw_usage("--logits: {} cannot be computed: {}", printable_path(model->path),
                  printable(model->spec.not_computable));
    }
    check_predicts(*model);
  }
  check_same_vocabulary(source, result);
  parse_device(options.device);
  if (!options.data.empty()) {
    count_windows(TokenFile::open(options.data), settings_of(options, source, result));
  }
}

LogitsResult measure_logits(const LogitsOptions& options, const Model& source, const Model& result,
                            const Console& console) {
  check_data_origin(source, options.data, console);
  set_compute_threads(options.threads);
  check_all_shapes(result.spec, result.checkpoint);
  const std::int64_t context = settings_of(options, source, result).context;
  warn_of_context(source, context, console);
  console.notes("note", device_notes(parse_device(options.device)));
  const Batches windows = windows_of(options, source, result);
  Progress progress(console, "logits", steps_to_compare(source, result, windows), "steps");
  PredictionComparison found;
  with_torch_errors([&] {
    found = compare_predictions(source, result, windows, parse_device(options.device),
                                progress.callback(), interrupt_requested());
  });
  progress.finish();
  return {options.data,
          context,
          found.tokens,
          found.kl,
          found.largest_kl,
          found.mean_difference,
          found.largest_difference,
          found.largest_logit,
          found.agreement};
}

}  // namespace regroup

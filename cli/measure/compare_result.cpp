#include "cli/measure/compare_result.h"

#include <algorithm>
#include <cmath>

#include "cli/process/interrupt.h"
#include "converter/plan/reference_plan.h"
#include "converter/target/recorded_target.h"
#include "formats/base/error.h"
#include "uptrain/evaluate/compare_models.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

// The request for the reference: the source's architecture, with means rounded to the requested
// dtype. GGUF stores some tensors in F32 whatever the dtype, so for GGUF the reference rounds
// nothing.
ConversionRequest reference_request(ConversionRequest request, const ConversionPlan& plan) {
  request.target = "same";
  request.container = std::nullopt;
  if (request.dtype && (is_block_type(*request.dtype) || plan.container == Container::kGguf)) {
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
  const bool pools = std::any_of(step.moves.begin(), step.moves.end(),
                                 [](const HeadMove& move) { return move.pools(); });
  const DType before = source.at(step.moves.front().source).dtype;
  return (narrow || pools) && dtype != reference.dtype.value_or(before);
}

// The allowed difference as a share of the largest logit. Moved numbers only change the order of
// sums; rounding errors of weights grow on their way to the logits.
double allowed_share(const ConversionPlan& plan, const ConversionRequest& reference,
                     const Checkpoint& source) {
  const bool rounded = std::any_of(
      plan.steps.begin(), plan.steps.end(),
      [&](const TensorStep& step) { return rounds_differently(step, reference, source); });
  return rounded ? 0.05 : 1e-4;
}

// Whether the requested dtype, to which the reference is rounded as well, has fewer digits than the
// source's.
bool loses_digits(const ConversionPlan& plan, const ConversionRequest& reference,
                  const Checkpoint& source) {
  return reference.dtype && bits_of(*reference.dtype) < 32 &&
         std::any_of(
             plan.steps.begin(), plan.steps.end(),
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
  const auto compare = [&](const ConversionPlan& expected) {
    with_torch_errors([&] {
      const LogitComparison found = compare_logits(
          expected, source, as_source_computes(open_computable_model(result), source),
          interrupt_requested());
      comparison.largest_difference = found.largest_difference;
      comparison.largest_output = found.largest_logit;
    });
  };
  compare(reference);
  const double allowed =
      allowed_share(plan, same, source.checkpoint) * std::max(1.0, comparison.largest_output);
  if (!(comparison.largest_difference <= allowed)) {
    throw Error(ErrorKind::kDifference,
                fmt::format("written as {}, the model computes other logits: they differ by up to "
                            "{:.3g}, {:.3g} is allowed; the result was removed",
                            plan.target.architecture, comparison.largest_difference, allowed));
  }
  if (loses_digits(plan, same, source.checkpoint)) {
    comparison.without_rounding = comparison.largest_difference;
    ConversionRequest exact = same;
    exact.dtype = std::nullopt;
    compare(plan_conversion(source, exact));
  }
  return comparison;
}

}  // namespace regroup

#include "converter/verify/requested_dtype.h"

#include <algorithm>
#include <map>
#include <string>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/dtype/numbers.h"
#include "formats/json/printable_json.h"

namespace regroup {
namespace {

// The type that most matrices of a result have.
std::optional<DType> usual_dtype(const Checkpoint& result) {
  std::map<DType, std::size_t> matrices;
  for (const TensorInfo& tensor : result.tensors()) {
    matrices[tensor.dtype] += tensor.shape.size() == 2 && can_encode(tensor.dtype) ? 1 : 0;
  }
  const auto most = std::max_element(matrices.begin(), matrices.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most != matrices.end() && most->second > 0 ? std::optional(most->first) : std::nullopt;
}

// If most matrices have another type than in `plan`, which was made without a requested type: that
// type.
std::optional<DType> asked_dtype(const ConversionPlan& plan, const Checkpoint& result) {
  std::map<DType, std::size_t> others;
  std::size_t matrices = 0;
  for (const TensorStep& step : plan.steps) {
    const TensorInfo* tensor = result.find(step.output.name);
    if (tensor == nullptr || step.output.shape.size() != 2 || !can_decode(step.output.dtype)) {
      continue;
    }
    ++matrices;
    if (tensor->dtype != step.output.dtype && can_encode(tensor->dtype)) {
      ++others[tensor->dtype];
    }
  }
  const auto most = std::max_element(others.begin(), others.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most != others.end() && 2 * most->second > matrices ? std::optional(most->first)
                                                             : std::nullopt;
}

}  // namespace

std::optional<DType> requested_dtype(const ConversionRequest& request, const Json& facts,
                                     const Model& source, const Model& result) {
  if (facts.contains("dtype")) {
    const Json& recorded = facts.at("dtype");
    const auto dtype = recorded == name_of(DType::kQ8_0) ? std::optional(DType::kQ8_0)
                       : recorded.is_string() ? dtype_from_name(recorded.get<std::string>())
                                              : std::nullopt;
    if (!dtype || !can_encode(*dtype)) {
      throw_bad_input("{}: its recorded dtype is {}, must be one that --dtype takes, such as F16",
                      printable(result.path.string(), 0), printable_json(recorded));
    }
    return dtype;
  }
  const auto& tensors = source.checkpoint.tensors();
  const bool quantised = std::any_of(tensors.begin(), tensors.end(), [](const TensorInfo& tensor) {
    return is_block_type(tensor.dtype);
  });
  return quantised && request.container != Container::kGguf
             ? usual_dtype(result.checkpoint)
             : asked_dtype(plan_conversion(source, request), result.checkpoint);
}

}  // namespace regroup

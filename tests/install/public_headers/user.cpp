// user MODEL RESULT: describes a model, converts it to one kv head and verifies the result. Uses
// public headers only.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "converter/convert/conversion_plan.h"
#include "converter/convert/execute_plan.h"
#include "converter/convert/kv_head_request.h"
#include "converter/convert/verify_conversion.h"
#include "converter/heads/pool_method.h"
#include "formats/base/error.h"
#include "formats/model/model.h"
#include "formats/model/model_summary.h"
#include "formats/model/serving_cost.h"
#include "formats/spec/alibi.h"

using namespace regroup;

namespace {

void describe(const Model& model) {
  const ModelSummary summary = summarize_model(model.path, model.checkpoint);
  const ServingCost least = serving_costs(model, {}).back();
  std::printf("%s, %s: %llu bytes per token, at least %llu; ", summary.family.c_str(),
              summary.attention.c_str(),
              static_cast<unsigned long long>(summary.kv_cache->per_token()),
              static_cast<unsigned long long>(least.cache.per_token()));
}

void convert(const Model& source, const char* destination) {
  ConversionRequest request;
  request.kv_heads = parse_kv_heads("1");
  request.pooling.method = PoolMethod::kFirst;
  const std::atomic<bool> stop = false;
  execute_conversion(
      plan_conversion(source, request), source, destination, [](std::uint64_t, std::string_view) {},
      stop);
}

bool verified(const Model& source, const Model& result) {
  const ConversionPlan plan = plan_conversion(source, recorded_request(source, result, nullptr));
  return verify_conversion(plan, source, result, [](std::uint64_t, std::string_view) {}).passed();
}

}  // namespace

int main(int, char** words) {
  const Model source = open_model(words[1]);
  describe(source);
  convert(source, words[2]);
  std::puts(verified(source, open_model(words[2])) ? "verified" : "different");
  std::printf("slope %g\n", alibi_slopes(8).front());
  try {
    convert(source, words[2]);  // exists
  } catch (const Error& fault) {
    std::puts(fault.kind() == ErrorKind::kUsage ? "refused" : fault.what());
  }
}

// Models with sliding windows that the transformer does not compute.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/refusal.h"
#include "tests/uptrain/golden_case.h"

namespace regroup {
namespace {

Error refusal_with_window(const char* name) {
  Model model = load_golden_case(name).source;
  model.spec.sliding_window = 4;
  return refusal_of([&] { load_transformer(model, at::kFloat, at::kCPU); });
}

}  // namespace

TEST_CASE("sliding windows need one stack without relative bias, or with ALiBi a causal one",
          "[uptrain]") {
  const Model causal = load_golden_case("mistral").source;
  REQUIRE(causal.spec.sliding_window);
  CHECK_NOTHROW(load_transformer(causal, at::kFloat, at::kCPU));
  for (const char* name : {"t5", "bart", "mpnet", "jina_bert"}) {
    CAPTURE(name);
    CHECK_THAT(refusal_with_window(name), is_bad_input("sliding windows", "causal attention"));
  }
}

TEST_CASE("sliding windows with a relative bias are refused in a decoder as well", "[uptrain]") {
  Model model = load_golden_case("llama").source;
  model.spec.sliding_window = 4;
  CHECK_NOTHROW(load_transformer(model, at::kFloat, at::kCPU));
  model.spec.positions = PositionKind::kRelativeBias;
  CHECK_THAT(refusal_of([&] { load_transformer(model, at::kFloat, at::kCPU); }),
             is_bad_input("sliding windows", "without a relative bias"));
}

}  // namespace regroup

// BART and its relatives with one wrong setting: their logits must differ from transformers'.
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>

#include "tests/uptrain/golden_case.h"
#include "uptrain/train/objective.h"

namespace regroup {

TEST_CASE("a relative of BART with one wrong setting has other logits than transformers",
          "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto differs = [](const char* name, auto change) {
    GoldenCase golden = load_golden_case(name);
    const Parameters parameters =
        load_parameters(golden.source.spec, golden.source.checkpoint, at::kFloat, at::kCPU);
    change(golden.source.spec);
    const at::Tensor logits = logits_of(golden.source.spec, parameters, golden.tokens);
    return largest_difference(logits, golden.logits) >= 1e-2;
  };
  for (const char* name : {"bart", "mbart"}) {
    CAPTURE(name);
    CHECK(differs(name, [](ModelSpec& spec) { spec.position_offset = 1; }));
    CHECK(differs(name, [](ModelSpec& spec) { spec.embedding_norm = {}; }));
    CHECK(differs(name, [](ModelSpec& spec) { spec.encoder_embedding_norm = {}; }));
    CHECK(differs(name, [](ModelSpec& spec) { spec.lm_head_bias.clear(); }));
    CHECK(differs(name, [](ModelSpec& spec) {
      std::swap(spec.position_embedding, spec.encoder_position_embedding);
    }));
    CHECK(differs(name, [](ModelSpec& spec) {
      std::swap(spec.embedding_norm, spec.encoder_embedding_norm);
    }));
  }
  CHECK(differs("bart", [](ModelSpec& spec) { spec.norm_placement = NormPlacement::kBefore; }));
  CHECK(differs("mbart", [](ModelSpec& spec) { spec.embedding_scale = 1.0; }));
  CHECK(differs("mbart", [](ModelSpec& spec) { spec.encoder_final_norm = {}; }));
  CHECK(differs("marian", [](ModelSpec& spec) { spec.sinusoids.steps -= 1; }));
  CHECK(differs("marian", [](ModelSpec& spec) { spec.position_offset = 1; }));
  CHECK(differs("m2m_100", [](ModelSpec& spec) { spec.sinusoids.steps += 1; }));
  CHECK(differs("m2m_100", [](ModelSpec& spec) { spec.position_offset = 0; }));
  // The stored tables of this fixture are not the formula's.
  CHECK(differs("pegasus", [](ModelSpec& spec) { spec.position_embedding.clear(); }));
  CHECK(differs("pegasus", [](ModelSpec& spec) { spec.encoder_position_embedding.clear(); }));
}

}  // namespace regroup

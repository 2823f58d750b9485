// Steps for linear maps, norms and vectors that differ between two models.
#include <catch2/catch_test_macros.hpp>

#include "converter/convert/tensor_step.h"
#include "formats/model/model_directory.h"
#include "tests/checkpoint_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Names = std::vector<std::string>;

// A map of 3 inputs and 2 outputs, stored both ways round, a norm, and a vector of bytes.
class Source {
 public:
  Source() {
    put_checkpoint(directory_ / "model.safetensors",
                   std::vector{varied_tensor("map", DType::kBF16, {2, 3}),
                               varied_tensor("conv", DType::kF32, {3, 2}),
                               varied_tensor("norm", DType::kF16, {3}),
                               BuiltTensor{"codes", DType::kU8, {2}, "ab"}});
  }
  Checkpoint open() const { return open_checkpoint(directory_ / "model.safetensors"); }

 private:
  const TemporaryDirectory directory_;
};

const TensorStep& step_of(const std::vector<TensorStep>& steps, const std::string& name) {
  for (const TensorStep& step : steps) {
    if (step.output.name == name) {
      return step;
    }
  }
  throw std::logic_error("no step for " + name);
}

Names names_of(const std::vector<TensorStep>& steps) {
  Names names;
  for (const TensorStep& step : steps) {
    names.push_back(step.output.name);
  }
  return names;
}

TEST_CASE("a bias of the result alone becomes zeros in the dtype of the map", "[converter]") {
  const Source source;
  const Checkpoint checkpoint = source.open();
  TensorStepBuilder builder(checkpoint, 0.0, 0.0);
  builder.linear({"map", "", false}, {"new", "new.bias", false});
  builder.linear({"conv", "", true}, {"turned", "turned.bias", false});
  const std::vector<TensorStep> steps = builder.take();
  CHECK(names_of(steps) == Names{"new", "new.bias", "turned", "turned.bias"});
  const TensorStep& zeros = step_of(steps, "new.bias");
  CHECK(zeros.output.dtype == DType::kBF16);
  CHECK(zeros.output.shape == Shape{2});
  CHECK((zeros.moves.empty() && zeros.values.empty() && zeros.add == 0.0));
  CHECK(step_of(steps, "turned").output.shape == Shape{2, 3});
  CHECK(step_of(steps, "turned.bias").output.shape == Shape{2});
}

TEST_CASE("maps and norms and vectors missing on one side are skipped", "[converter]") {
  const Source source;
  const Checkpoint checkpoint = source.open();
  TensorStepBuilder builder(checkpoint, 0.0, 0.0);
  builder.linear({"", "", false}, {"new", "", false});
  builder.linear({"map", "", false}, {"", "", false});
  builder.norm({"", ""}, {"new", ""});
  builder.norm({"norm", ""}, {"", ""});
  builder.vector("", "new", Features::all(3));
  builder.vector("norm", "", Features::all(3));
  CHECK(builder.take().empty());
}

TEST_CASE("norm weights change by the difference of the offsets", "[converter]") {
  const Source source;
  const Checkpoint checkpoint = source.open();
  TensorStepBuilder builder(checkpoint, 1.0, 0.0);
  builder.norm({"norm", ""}, {"plain", "plain.bias"});
  const std::vector<TensorStep> steps = builder.take();
  CHECK(step_of(steps, "plain").add == 1.0);
  CHECK(step_of(steps, "plain.bias").add == 0.0);
  CHECK(step_of(steps, "plain.bias").output.dtype == DType::kF16);
}

TEST_CASE("an identity norm stores 1 minus the offset of the result", "[converter]") {
  const Source source;
  const Checkpoint checkpoint = source.open();
  for (const double offset : {0.0, 1.0}) {
    TensorStepBuilder builder(checkpoint, 0.0, offset);
    builder.identity_norm({"one", "one.bias"}, {"norm", ""});
    const std::vector<TensorStep> steps = builder.take();
    CHECK(step_of(steps, "one").add == 1.0 - offset);
    CHECK(step_of(steps, "one").output.shape == Shape{3});
    CHECK(step_of(steps, "one.bias").add == 0.0);
  }
}

TEST_CASE("calls that fill one fused tensor make one step, where it was first named",
          "[converter]") {
  const Source source;
  const Checkpoint checkpoint = source.open();
  TensorStepBuilder builder(checkpoint, 0.0, 0.0);
  builder.place("map", false, "fused", false, {{0}, {0}, 2, 4, {}, {}});
  builder.vector("norm", "vector", Features::all(3));
  builder.place("map", false, "fused", false, {{0}, {2}, 2, 4, {}, {}});
  const std::vector<TensorStep> steps = builder.take();
  CHECK(names_of(steps) == Names{"fused", "vector"});
  CHECK(step_of(steps, "fused").moves.size() == 2);
  CHECK(step_of(steps, "fused").output.shape == Shape{4, 3});
}

TEST_CASE("values that cannot be decoded are copied but not pooled", "[converter]") {
  const Source source;
  const Checkpoint checkpoint = source.open();
  TensorStepBuilder builder(checkpoint, 0.0, 0.0);
  CHECK_NOTHROW(builder.vector("codes", "same", Features::all(2)));
  const Features mean{{0, 1}, {0}, 1, 1, {{0, 1}}, {}};
  CHECK_THAT(refusal_of([&] { builder.vector("codes", "mean", mean); }),
             is_bad_input("model.safetensors", "codes", "U8", "cannot be pooled"));
}

}  // namespace
}  // namespace regroup

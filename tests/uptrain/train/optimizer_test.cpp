// Optimizers compared with torch and transformers (tests/golden/optimizers.json), and their common
// behaviour.
#include "uptrain/train/optimizer.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/train/scalar.h"

namespace regroup {
namespace {

template <typename Function>
at::Tensor numbers(const std::vector<std::int64_t>& shape, const Function& function) {
  const at::Tensor tensor = at::empty(shape, at::kDouble);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.mutable_data_ptr<double>()[i] = function(static_cast<double>(i));
  }
  return tensor;
}

// Parameters and gradients as in make_optimizers.py.
struct Course {
  Json golden = parse_json_object(read_text(regroup::golden("optimizers.json"), 1 << 20), "golden");
  std::vector<std::vector<std::int64_t>> shapes = golden["shapes"];

  Parameters parameters() const {
    std::vector<Parameters::Entry> entries;
    for (const auto& shape : shapes) {
      entries.push_back({"w" + std::to_string(entries.size()),
                         numbers(shape, [](double i) { return std::cos(0.9 * i); })});
    }
    return Parameters(std::move(entries));
  }
  std::vector<at::Tensor> gradients(int update) const {
    std::vector<at::Tensor> tensors;
    for (const auto& shape : shapes) {
      tensors.push_back(
          numbers(shape, [&](double i) { return std::sin(1.3 * i + 0.7 * update) / update; }));
    }
    return tensors;
  }
  void run(Optimizer& optimizer) const {
    for (int update = 1; update <= golden["updates"].get<int>(); ++update) {
      optimizer.step(gradients(update), golden["rate"], scalar(1), scalar(0));
    }
  }
};

double stray(const Parameters& parameters, const Json& expected) {
  double largest = 0.0;
  for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
    const at::Tensor flat = parameters.entries()[i].value.flatten();
    REQUIRE(static_cast<std::size_t>(flat.numel()) == expected[i].size());
    for (std::int64_t j = 0; j < flat.numel(); ++j) {
      largest = std::max(largest, std::abs(flat[j].item<double>() -
                                           expected[i][static_cast<std::size_t>(j)].get<double>()));
    }
  }
  return largest;
}

OptimizerSettings settings_of(const std::string& name) {
  OptimizerSettings settings;
  if (name != "adamw") {
    settings.kind = OptimizerKind::kAdafactor;
    settings.scale_by_parameter = name == "adafactor_scaled";
    settings.weight_decay = name == "adafactor_decayed" ? 0.1 : 0.0;
  }
  return settings;
}

}  // namespace

TEST_CASE("optimizers update like torch's and transformers'", "[uptrain]") {
  const Course course;
  const std::string name = GENERATE("adamw", "adafactor", "adafactor_decayed", "adafactor_scaled");
  CAPTURE(name);
  const Parameters parameters = course.parameters();
  const auto optimizer = make_optimizer(MasterWeights(parameters), settings_of(name));
  course.run(*optimizer);
  // torch counts steps in fp32, and so computes AdamW's bias corrections in fp32.
  CHECK(stray(parameters, course.golden[name]) < (name == "adamw" ? 1e-7 : 1e-12));
  for (const std::string other : {"adamw", "adafactor", "adafactor_decayed", "adafactor_scaled"}) {
    CHECK((stray(parameters, course.golden[other]) < 1e-3) == (other == name));
  }
}

TEST_CASE("a skipped optimizer step leaves the state unchanged", "[uptrain]") {
  const Course course;
  OptimizerSettings settings;
  settings.kind = GENERATE(OptimizerKind::kAdamW, OptimizerKind::kAdafactor);
  const Parameters skipping = course.parameters(), plain = course.parameters();
  const auto one = make_optimizer(MasterWeights(skipping), settings),
             other = make_optimizer(MasterWeights(plain), settings);
  const auto update = [&](Optimizer& optimizer, int number) {
    optimizer.step(course.gradients(number), 0.05, scalar(1), scalar(0));
  };
  std::vector<at::Tensor> spoilt = course.gradients(1);
  for (const at::Tensor& gradient : spoilt) {
    gradient.fill_(std::nan(""));
  }
  one->step(spoilt, 0.05, scalar(1), scalar(1));
  update(*one, 1);
  one->step(spoilt, 0.05, scalar(1), scalar(1));
  update(*one, 2);
  update(*other, 1);
  update(*other, 2);
  for (std::size_t i = 0; i < plain.entries().size(); ++i) {
    CHECK(skipping.entries()[i].value.equal(plain.entries()[i].value));
  }
  for (std::size_t i = 0; i < one->state().size(); ++i) {
    CHECK(one->state()[i].value.equal(other->state()[i].value));
  }
}

TEST_CASE("an optimizer divides gradients before it uses them", "[uptrain]") {
  const Course course;
  OptimizerSettings settings;
  settings.kind = GENERATE(OptimizerKind::kAdamW, OptimizerKind::kAdafactor);
  const Parameters divided = course.parameters(), plain = course.parameters();
  std::vector<at::Tensor> fourfold = course.gradients(1);
  for (const at::Tensor& gradient : fourfold) {
    gradient.mul_(4.0);
  }
  const auto one = make_optimizer(MasterWeights(divided), settings),
             other = make_optimizer(MasterWeights(plain), settings);
  one->step(fourfold, 0.05, scalar(4), scalar(0));
  other->step(course.gradients(1), 0.05, scalar(1), scalar(0));
  for (std::size_t i = 0; i < one->state().size(); ++i) {
    CAPTURE(one->state()[i].name);
    CHECK(largest_difference(one->state()[i].value, other->state()[i].value) < 1e-15);
  }
}

TEST_CASE("Adafactor's state has a row and a column for each matrix", "[uptrain]") {
  const Course course;  // [3, 4], [4], [2, 3, 2]
  const auto state =
      make_optimizer(MasterWeights(course.parameters()), {.kind = OptimizerKind::kAdafactor})
          ->state();
  const auto shape_of = [&](const std::string& name) {
    for (const Parameters::Entry& entry : state) {
      if (entry.name == name) {
        return entry.value.sizes().vec();
      }
    }
    return std::vector<std::int64_t>{-1};
  };
  using Sizes = std::vector<std::int64_t>;
  CHECK(shape_of("second_moment_rows.w0") == Sizes{3});
  CHECK(shape_of("second_moment_columns.w0") == Sizes{4});
  CHECK(shape_of("second_moment.w1") == Sizes{4});
  CHECK(shape_of("second_moment_rows.w2") == Sizes{2, 3});
  CHECK(shape_of("second_moment_columns.w2") == Sizes{2, 2});
  CHECK(shape_of("optimizer.count") == Sizes{});
  CHECK(state.size() == 6);
  const OptimizerSettings adafactor{.kind = OptimizerKind::kAdafactor}, adamw;
  CHECK(optimizer_state_bytes(adafactor, {3, 4}) == 4 * 7);
  CHECK(optimizer_state_bytes(adafactor, {2, 3, 2}) == 4 * 10);
  CHECK(optimizer_state_bytes(adafactor, {4}) == 4 * 4);
  CHECK(optimizer_state_bytes(adamw, {3, 4}) == 8 * 12);
  CHECK(optimizer_state_bytes({.moments = Precision::kBf16}, {3, 4}) == 4 * 12);
}

TEST_CASE("optimizers are parsed from their names and others refused", "[uptrain]") {
  CHECK(parse_optimizer("adamw") == OptimizerKind::kAdamW);
  CHECK(parse_optimizer("adafactor") == OptimizerKind::kAdafactor);
  CHECK_THAT(refusal_of([] { parse_optimizer("sgd\n"); }), is_wrong_usage("sgd", "adamw"));
}

}  // namespace regroup

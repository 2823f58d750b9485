// Optimizers give the same masters in every memory mode, bit for bit.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/refusal.h"
#include "uptrain/train/optimizer.h"

namespace regroup {
namespace {

at::Tensor fp32_number(double value) {
  return at::scalar_tensor(value, at::TensorOptions().dtype(at::kFloat));
}

// A reproducible sequence of numbers between -1 and 1.
class NumberNoise {
 public:
  at::Tensor tensor(const std::vector<std::int64_t>& shape) {
    const at::Tensor made = at::zeros_like(at::full(shape, 0.0, at::kFloat));
    for (std::int64_t i = 0; i < made.numel(); ++i) {
      state_ = state_ * 1664525U + 1013904223U;
      made.mutable_data_ptr<float>()[i] = static_cast<float>(state_ >> 8) / 0x1p23F - 1.0F;
    }
    return made;
  }

 private:
  std::uint32_t state_ = 5;
};

const std::vector<std::vector<std::int64_t>> kMasterShapes = {{40, 30}, {30}, {2, 3, 20}};

struct TrainedMasters {
  TrainedMasters(MemoryMode mode, const std::vector<at::Tensor>& start,
                 const OptimizerSettings& settings)
      : masters(mode, tensors_of(mode, start)), optimizer(make_optimizer(masters, settings)) {}

  static std::vector<StateTensor> tensors_of(MemoryMode mode,
                                             const std::vector<at::Tensor>& start) {
    std::vector<StateTensor> tensors;
    for (const at::Tensor& whole : start) {
      const std::string name = "w" + std::to_string(tensors.size());
      tensors.push_back(mode == MemoryMode::kCompact ? split_tensor(name, whole.to(at::kBFloat16))
                                                     : StateTensor{name, whole.clone()});
      tensors.back().write(whole);
    }
    return tensors;
  }

  MasterWeights masters;
  std::unique_ptr<Optimizer> optimizer;
};

// Takes 100 steps with the same gradients of bf16; modes other than kFull get them as they are.
void take_hundred_steps(TrainedMasters& trained) {
  NumberNoise noise;
  for (int step = 0; step < 100; ++step) {
    std::vector<at::Tensor> gradients;
    for (const auto& shape : kMasterShapes) {
      const at::Tensor gradient = noise.tensor(shape).to(at::kBFloat16);
      gradients.push_back(trained.masters.mode() == MemoryMode::kFull ? gradient.to(at::kFloat)
                                                                      : gradient);
    }
    trained.optimizer->step(gradients, 0.01 / (1 + step), fp32_number(step % 3 == 0 ? 1.7 : 1.0),
                            fp32_number(step % 10 == 9 ? 1 : 0));
  }
}

}  // namespace

TEST_CASE("masters are the same bit for bit in every memory mode", "[uptrain]") {
  OptimizerSettings settings;
  settings.kind = GENERATE(OptimizerKind::kAdamW, OptimizerKind::kAdafactor);
  settings.weight_decay = 0.1;
  if (settings.kind == OptimizerKind::kAdamW) {
    settings.moments = GENERATE(Precision::kFp32, Precision::kBf16);
  }
  const MemoryMode mode = GENERATE(MemoryMode::kCompact, MemoryMode::kHost);
  CAPTURE(name_of(settings.kind), name_of(settings.moments), name_of(mode));
  NumberNoise noise;
  std::vector<at::Tensor> start;
  for (const auto& shape : kMasterShapes) {
    start.push_back(noise.tensor(shape));
  }
  TrainedMasters full(MemoryMode::kFull, start, settings), other(mode, start, settings);
  take_hundred_steps(full);
  take_hundred_steps(other);
  for (std::size_t i = 0; i < start.size(); ++i) {
    const at::Tensor expected = full.masters.read(i);
    CHECK_FALSE(expected.equal(start[i]));
    CHECK(other.masters.read(i).view(at::kInt).equal(expected.view(at::kInt)));
    if (mode == MemoryMode::kCompact) {  // the model computes with the rounded masters
      const at::Tensor error = other.masters.tensors()[i].value.to(at::kFloat) - expected;
      CHECK((error.abs() <= expected.abs() * 0x1p-8).all().item<bool>());
    }
  }
  const auto one = full.optimizer->state(), two = other.optimizer->state();
  REQUIRE(one.size() == two.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].name == two[i].name);
    CHECK(one[i].value.equal(two[i].value));
  }
}

TEST_CASE("memory modes are parsed from their names and others refused", "[uptrain]") {
  for (const MemoryMode mode : {MemoryMode::kFull, MemoryMode::kCompact, MemoryMode::kHost}) {
    CHECK(parse_memory_mode(name_of(mode)) == mode);
  }
  CHECK_THAT(refusal_of([] { parse_memory_mode("disk"); }), is_wrong_usage("disk", "compact"));
}

}  // namespace regroup

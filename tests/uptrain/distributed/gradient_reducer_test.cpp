// Two ranks, as threads of this process, that sum their gradients.
#include <array>
#include <functional>
#include <future>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {
namespace {

// What one rank saw: the buckets started by the time of its first, second, ... tensor, and the
// final sums.
struct Seen {
  std::vector<std::size_t> begun;
  std::vector<std::string> names;
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> alone;  // of this rank only, for all tensors
};

std::array<Seen, 2> on_two_ranks(const std::function<Seen(ProcessGroup&)>& work) {
  const int port = free_port();
  const auto run = [&](int rank) {
    ProcessGroup group(launch_of_two(rank, port), at::kCPU, std::chrono::seconds(60));
    return work(group);
  };
  std::future<Seen> second = std::async(std::launch::async, run, 1);
  Seen first = run(0);
  return {std::move(first), second.get()};
}

SumTaker taker_of(GradientReducer& reducer, Seen& seen) {
  return [&](std::size_t tensor, at::Tensor gradient) {
    reducer.add_ready(tensor, std::move(gradient));
    seen.begun.push_back(reducer.begun());
  };
}

// A loss of a fixture's model that differs for each `part`.
struct TrainingSetup {
  TrainingSetup(const std::string& name, at::ScalarType type, bool recomputing)
      : golden(load_golden_case(name)),
        parameters(load_parameters(golden.source.spec, golden.source.checkpoint, type, at::kCPU)),
        model(golden.source.spec, parameters) {
    model.set_recomputing(recomputing);
    parameters.require_gradients();
  }

  at::Tensor loss(std::int64_t part) const {
    const Task task{objective_of(model.spec()), {.token = 3}};
    const at::Tensor ids = golden.tokens.narrow(1, 0, window_width(task.objective, 12));
    const auto [hidden, targets] = predict(model, ids.roll(part, 1), part, task);
    return model.loss(hidden, targets);
  }

  GoldenCase golden;
  Parameters parameters;
  Transformer model;
};

// Two micro-batches on a rank, then the same without the other rank.
Seen train_on(ProcessGroup& group, const TrainingSetup& setup, std::int64_t bucket_elements) {
  const ZeroPartition partition(group, setup.parameters, bucket_elements);
  GradientReducer reducer(partition);
  GradientSum gradients(setup.parameters.tensors());
  const std::int64_t part = 2 * group.rank();
  Seen seen;
  gradients.add(setup.loss(part));
  gradients.add_last(setup.loss(part + 1), taker_of(reducer, seen));
  seen.names = partition.own_names();
  seen.sums = reducer.finish();
  gradients.add(setup.loss(part));
  gradients.add(setup.loss(part + 1));
  seen.alone = gradients.take();
  return seen;
}

}  // namespace

TEST_CASE("ranks start buckets in the same order whatever the order of their gradients",
          "[uptrain][ranks]") {
  const auto seen = on_two_ranks([](ProcessGroup& group) {
    std::vector<Parameters::Entry> entries;
    for (const std::int64_t size : {6, 1, 4, 3, 2}) {
      entries.push_back({"t" + std::to_string(entries.size()), at::zeros({size})});
    }
    // Owned by 0, 1, 1, 1, 0. The buckets of 6 elements: 4 | 3 | 2 and 1 | 0.
    const ZeroPartition partition(group, Parameters(entries), 6);
    GradientReducer reducer(partition);
    Seen here;
    const SumTaker take = taker_of(reducer, here);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::size_t tensor = group.first() ? entries.size() - 1 - i : i;
      const double value = static_cast<double>(tensor + 1) * (group.first() ? 1 : 10);
      take(tensor, at::full({entries[tensor].value.size(0)}, value));
    }
    here.names = partition.own_names();
    here.sums = reducer.finish();
    return here;
  });
  CHECK(seen[0].begun == std::vector<std::size_t>{1, 2, 2, 3, 4});
  CHECK(seen[1].begun == std::vector<std::size_t>{0, 0, 0, 0, 4});
  CHECK(seen[0].names == std::vector<std::string>{"t0", "t4"});
  CHECK(seen[1].names == std::vector<std::string>{"t1", "t2", "t3"});
  REQUIRE(seen[0].sums.size() == 2);
  REQUIRE(seen[1].sums.size() == 3);
  CHECK(seen[0].sums[0].equal(at::full({6}, 11.0)));
  CHECK(seen[0].sums[1].equal(at::full({2}, 55.0)));
  CHECK(seen[1].sums[0].equal(at::full({1}, 22.0)));
  CHECK(seen[1].sums[1].equal(at::full({4}, 33.0)));
  CHECK(seen[1].sums[2].equal(at::full({3}, 44.0)));
}

TEST_CASE("sums of two ranks made during and after the backward pass are identical",
          "[uptrain][ranks]") {
  // Tied embeddings, learned positions, and an encoder whose gradients come after the decoder's.
  const auto* name = GENERATE("llama_mha", "gpt2", "bloom", "t5_small");
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const bool recomputing = GENERATE(false, true);
  CAPTURE(name, type, recomputing);
  const TrainingSetup setups[] = {TrainingSetup(name, type, recomputing),
                                  TrainingSetup(name, type, recomputing)};
  const auto seen = on_two_ranks(
      [&](ProcessGroup& group) { return train_on(group, setups[group.rank()], 1000); });
  const auto entries = setups[0].parameters.entries();
  std::size_t found = 0;
  for (const Seen& rank : seen) {
    REQUIRE(rank.sums.size() == rank.names.size());
    for (std::size_t i = 0, own = 0; i < entries.size(); ++i) {
      if (own < rank.names.size() && entries[i].name == rank.names[own]) {
        CHECK(rank.sums[own++].equal(seen[0].alone[i] + seen[1].alone[i]));
        ++found;
      }
    }
    // When the last gradient (the embedding's) comes, most other buckets have started.
    REQUIRE(rank.begun.size() == entries.size());
    CHECK(rank.begun[entries.size() - 2] * 2 > rank.begun.back());
  }
  CHECK(found == entries.size());
  CHECK_FALSE(seen[0].alone[0].equal(seen[1].alone[0]));
}

}  // namespace regroup

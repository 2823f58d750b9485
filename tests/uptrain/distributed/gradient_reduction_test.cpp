// Two ranks, threads of this process, that add up their gradients.
#include "uptrain/distributed/gradient_reduction.h"

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
#include "uptrain/objective/objective.h"
#include "uptrain/trainer/gradients.h"

namespace regroup {
namespace {

// What one rank saw: the buckets that had set out when it had given its first, second, ... tensor,
// and the sums that it has in the end.
struct Seen {
  std::vector<std::size_t> begun;
  std::vector<std::string> names;
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> alone;  // this rank's own, of all tensors
};

std::array<Seen, 2> on_two_ranks(const std::function<Seen(Ranks&)>& work) {
  const int port = free_port();
  const auto run = [&](int rank) {
    Launch launch;
    launch.rank = rank;
    launch.ranks = 2;
    launch.address = "127.0.0.1";
    launch.port = port;
    Ranks ranks(launch, at::kCPU, std::chrono::seconds(60));
    return work(ranks);
  };
  std::future<Seen> second = std::async(std::launch::async, run, 1);
  Seen first = run(0);
  return {std::move(first), second.get()};
}

SumTaker taker_of(GradientReduction& reduction, Seen& seen) {
  return [&](std::size_t tensor, at::Tensor gradient) {
    reduction.give(tensor, std::move(gradient));
    seen.begun.push_back(reduction.begun());
  };
}

// A loss of a fixture's model, another one for each `part`.
struct Lesson {
  Lesson(const std::string& name, at::ScalarType type, bool recomputing)
      : golden(load_golden_case(name)),
        parameters(load_parameters(golden.source.spec, golden.source.checkpoint, type, at::kCPU)),
        model(golden.source.spec, parameters) {
    model.set_recomputing(recomputing);
    parameters.require_gradients();
  }

  at::Tensor loss(std::int64_t part) const {
    const Task task{objective_of(model.spec()), {.token = 3}, {}};
    const at::Tensor ids = golden.tokens.narrow(1, 0, window_width(task.objective, 12));
    const auto [hidden, targets] = predict(model, ids.roll(part, 1), part, task);
    return model.loss(hidden, targets);
  }

  GoldenCase golden;
  Parameters parameters;
  Transformer model;
};

// Two micro-batches on a rank, and the same once more, kept.
Seen train_on(Ranks& ranks, const Lesson& lesson, std::int64_t bucket_elements) {
  const WeightShares shares(ranks, lesson.parameters, bucket_elements);
  GradientReduction reduction(shares);
  GradientSum gradients(lesson.parameters.tensors());
  const std::int64_t part = 2 * ranks.rank();
  Seen seen;
  gradients.add(lesson.loss(part));
  gradients.add_last(lesson.loss(part + 1), taker_of(reduction, seen));
  seen.names = shares.own_names();
  seen.sums = reduction.finish();
  gradients.add(lesson.loss(part));
  gradients.add(lesson.loss(part + 1));
  seen.alone = gradients.take();
  return seen;
}

}  // namespace

TEST_CASE("ranks begin buckets in one order, whatever order their gradients come in",
          "[uptrain][ranks]") {
  const auto seen = on_two_ranks([](Ranks& ranks) {
    std::vector<Parameters::Entry> entries;
    for (const std::int64_t size : {6, 1, 4, 3, 2}) {
      entries.push_back({"t" + std::to_string(entries.size()), at::zeros({size})});
    }
    // Owned by 0, 1, 1, 1, 0. In buckets of 6: 4 | 3 | 2 and 1 | 0.
    const WeightShares shares(ranks, Parameters(entries), 6);
    GradientReduction reduction(shares);
    Seen here;
    const SumTaker take = taker_of(reduction, here);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::size_t tensor = ranks.first() ? entries.size() - 1 - i : i;
      const double value = static_cast<double>(tensor + 1) * (ranks.first() ? 1 : 10);
      take(tensor, at::full({entries[tensor].value.size(0)}, value));
    }
    here.names = shares.own_names();
    here.sums = reduction.finish();
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

TEST_CASE("sums of two ranks made during the backward pass are those made after it, to the bit",
          "[uptrain][ranks]") {
  // Tied embeddings, learned positions, an encoder whose gradients come after the decoder's.
  const auto* name = GENERATE("llama_mha", "gpt2", "bloom", "t5_small");
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const bool recomputing = GENERATE(false, true);
  CAPTURE(name, type, recomputing);
  const Lesson lessons[] = {Lesson(name, type, recomputing), Lesson(name, type, recomputing)};
  const auto seen =
      on_two_ranks([&](Ranks& ranks) { return train_on(ranks, lessons[ranks.rank()], 1000); });
  const auto entries = lessons[0].parameters.entries();
  std::size_t found = 0;
  for (const Seen& rank : seen) {
    REQUIRE(rank.sums.size() == rank.names.size());
    for (std::size_t i = 0, own = 0; i < entries.size(); ++i) {
      if (own < rank.names.size() && entries[i].name == rank.names[own]) {
        CHECK(rank.sums[own++].equal(seen[0].alone[i] + seen[1].alone[i]));
        ++found;
      }
    }
    // When the last gradient comes, that of the embedding, most others are on their way.
    REQUIRE(rank.begun.size() == entries.size());
    CHECK(rank.begun[entries.size() - 2] * 2 > rank.begun.back());
  }
  CHECK(found == entries.size());
  CHECK_FALSE(seen[0].alone[0].equal(seen[1].alone[0]));
}

}  // namespace regroup

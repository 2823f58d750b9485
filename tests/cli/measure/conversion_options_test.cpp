#include "cli/measure/conversion_options.h"

#include <utility>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model.h"
#include "tests/file_tree.h"

namespace regroup {
namespace {

using Windows = std::pair<std::int64_t, std::int64_t>;  // tokens of each, and how many in a step

// Of a model with so many positions; 0: not given.
Windows windows(bool causal, std::int64_t positions, std::int64_t context = 0,
                std::int64_t batch = 0) {
  Model model = open_model(golden("bert"));
  model.spec.causal = causal;
  model.spec.max_positions = positions;
  ConvertOptions::Refit options;
  options.context = context;
  options.batch = batch;
  choose_windows(model, options);
  return {options.context, options.batch};
}

TEST_CASE("encoders are converted in short windows, and none is longer than the model's positions",
          "[cli]") {
  CHECK(windows(true, 2048) == Windows(512, 2));
  CHECK(windows(true, 256) == Windows(256, 2));
  CHECK(windows(false, 512) == Windows(128, 8));
  CHECK(windows(false, 64) == Windows(64, 16));
  CHECK(windows(false, 16) == Windows(16, 16));
}

TEST_CASE("windows that are given stay, and those of encoders make steps of as many tokens",
          "[cli]") {
  CHECK(windows(true, 2048, 64) == Windows(64, 2));
  CHECK(windows(false, 512, 512) == Windows(512, 2));
  CHECK(windows(false, 4096, 4096) == Windows(4096, 1));
  CHECK(windows(false, 512, 64, 3) == Windows(64, 3));
}

}  // namespace
}  // namespace regroup

#include <algorithm>
#include <set>

#include <ATen/TensorOperators.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/data_loader.h"

namespace regroup {

TEST_CASE("windows are different ones of the text", "[uptrain]") {
  for (std::int64_t all = 1; all < 300; ++all) {
    const std::vector<std::int64_t> numbers = spread_windows(all, all);
    CHECK(std::ssize(std::set<std::int64_t>(numbers.begin(), numbers.end())) == all);
    CHECK(*std::min_element(numbers.begin(), numbers.end()) == 0);
    CHECK(*std::max_element(numbers.begin(), numbers.end()) == all - 1);
  }
}

TEST_CASE("each beginning of the windows is spread over the whole text", "[uptrain]") {
  const std::int64_t all = GENERATE(518, 4096, 9973, 100'000);
  const std::int64_t count = GENERATE(8, 64, 500);
  std::vector<std::int64_t> numbers = spread_windows(all, count);
  REQUIRE(std::ssize(numbers) == count);
  std::sort(numbers.begin(), numbers.end());
  numbers.push_back(all);
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    // No gap is longer than three times what equal ones are.
    CHECK((numbers[i] - numbers[i - 1]) * count <= 3 * all);
  }
}

TEST_CASE("windows are read from all over a token file", "[uptrain]") {
  const TemporaryDirectory directory;
  std::string ids;  // u16: each window repeats its number
  for (int i = 0; i < 100 * 16; ++i) {
    ids += {static_cast<char>(i / 16), '\0'};
  }
  put_file(directory / "tokens.bin", ids);
  const Batches batches = read_windows(TokenFile::open(directory / "tokens.bin"),
                                       {.context = 16, .batch = 3, .max_tokens = 160});
  std::set<std::int64_t> windows;
  for (const at::Tensor& batch : batches) {
    for (std::int64_t row = 0; row < batch.size(0); ++row) {
      const std::int64_t window = batch[row][0].item<std::int64_t>();
      CHECK((batch[row] == window).all().item<bool>());
      windows.insert(window);
    }
  }
  CHECK(windows.size() == 10);
  CHECK(*windows.rbegin() >= 80);
}

TEST_CASE("no windows of an empty text", "[uptrain]") { CHECK(spread_windows(0, 0).empty()); }

}  // namespace regroup

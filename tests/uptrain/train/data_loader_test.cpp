#include "uptrain/train/data_loader.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include <ATen/TensorOperators.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/ops/expert_routing.h"

namespace regroup {
namespace {

// A file of tokens that count up from `first`.
std::filesystem::path put_counting(const std::filesystem::path& path, std::size_t length,
                                   std::uint16_t first) {
  std::vector<std::uint16_t> ids(length);
  std::iota(ids.begin(), ids.end(), first);
  put_file(path, bytes_of_numbers(ids));
  return path;
}

}  // namespace

TEST_CASE("a permutation maps the indices one to one", "[uptrain]") {
  const std::uint64_t size = GENERATE(1, 2, 3, 7, 64, 65, 1000, 4097);
  const Permutation permutation(size, 1, 2);
  std::set<std::uint64_t> reached;
  std::uint64_t in_place = 0;
  for (std::uint64_t i = 0; i < size; ++i) {
    reached.insert(permutation(i));
    in_place += permutation(i) == i ? 1U : 0U;
  }
  CHECK(reached.size() == size);
  CHECK(*reached.rbegin() == size - 1);
  CHECK((size < 64 || in_place < 10));
}

TEST_CASE("permutations differ by seed and stream", "[uptrain]") {
  const auto order = [](std::uint64_t seed, std::uint64_t stream) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < 100; ++i) {
      all.push_back(Permutation(100, seed, stream)(i));
    }
    return all;
  };
  CHECK(order(1, 1) == order(1, 1));
  CHECK(order(1, 1) != order(2, 1));
  CHECK(order(1, 1) != order(1, 2));
}

TEST_CASE("an epoch shows every window of every file once", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::int64_t length = 10;
  const DataLoader data({put_counting(directory / "one", 101, 0),     // 10 windows, no spare
                         put_counting(directory / "two", 58, 1000)},  // 5 windows, 7 spare
                        length, 65536, 3);
  REQUIRE(data.windows() == 15);
  CHECK(data.tokens() == 159);
  std::vector<std::set<std::int64_t>> starts(3);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const at::Tensor batch = data.batch(epoch * 15, 15);  // [15, 11]
    const auto* ids = batch.const_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < 15; ++row) {
      const std::int64_t first = ids[row * 11];
      CHECK(ids[row * 11 + 10] == first + 10);
      starts[epoch].insert(first);
    }
  }
  // The first file's windows have one possible offset. The second's may start anywhere in a range.
  for (const auto& epoch : starts) {
    REQUIRE(epoch.size() == 15);
    std::int64_t expected = 0;
    for (const std::int64_t start : epoch) {
      expected = start == *epoch.lower_bound(1000) ? start : expected;
      CHECK(start == expected);
      expected += length;
    }
    CHECK(*epoch.lower_bound(1000) <= 1007);
  }
}

TEST_CASE("a sample depends only on its number and the seed", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto path = put_counting(directory / "tokens", 1000, 0);
  const DataLoader data({path}, 10, 65536, 3);
  const at::Tensor together = data.batch(40, 6);
  for (std::int64_t i = 0; i < 6; ++i) {
    CHECK(data.batch(40 + i, 1).equal(together.narrow(0, i, 1)));
  }
  CHECK(DataLoader({path}, 10, 65536, 3).batch(40, 6).equal(together));
  CHECK_FALSE(DataLoader({path}, 10, 65536, 4).batch(40, 6).equal(together));
}

TEST_CASE("a file shorter than one sequence and its target is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto path = put_counting(directory / "short", 10, 0);
  CHECK(DataLoader({path}, 9, 65536, 0).windows() == 1);
  CHECK_THAT(refusal_of([&] { DataLoader({path}, 10, 65536, 0); }),
             is_bad_input("short", "10 tokens", "needs 11"));
  CHECK_THAT(refusal_of([&] { DataLoader({path}, 5, 9, 0); }),
             is_bad_input("short", "token 9 is 9"));
}

TEST_CASE("weighted files get exact shares and have their own epochs", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::vector<std::filesystem::path> files{
      put_counting(directory / "a", 41, 0), put_counting(directory / "b", 201, 1000),
      put_counting(directory / "c", 11, 2000)};  // 4, 20 and 1 windows of 10
  const DataLoader data(files, 10, 3000, 7, {0.5, 0.25, 0.25});
  const std::int64_t all = DataLoader::kMixedSamples;
  CHECK(data.share_of(0) == 0.5);
  CHECK(data.passes_through(1, 80) == 1.0);
  const at::Tensor firsts = data.batch(0, all).select(1, 0);
  const auto* first = firsts.const_data_ptr<std::int64_t>();
  std::int64_t counts[3] = {};
  std::vector<std::int64_t> windows_of_a(4);
  for (std::int64_t i = 0; i < all; ++i) {
    ++counts[first[firsts.stride(0) * i] / 1000];
    if (first[firsts.stride(0) * i] < 1000) {
      ++windows_of_a[static_cast<std::size_t>(first[firsts.stride(0) * i] / 10)];
    }
  }
  CHECK(counts[0] == all / 2);
  CHECK(counts[1] == all / 4);
  CHECK(counts[2] == all / 4);
  // In whole epochs every window comes equally often.
  CHECK(windows_of_a == std::vector<std::int64_t>(4, all / 8));
  // Part of a block has about the same shares, and any sample can be read alone.
  CHECK(data.batch(77, 1).equal(data.batch(0, 100).narrow(0, 77, 1)));
  std::int64_t early = 0;
  for (std::int64_t i = 0; i < 400; ++i) {
    early += first[firsts.stride(0) * i] < 1000 ? 1 : 0;
  }
  CHECK(early > 150);
  CHECK(early < 250);
  CHECK_FALSE(
      DataLoader(files, 10, 3000, 8, {0.5, 0.25, 0.25}).batch(0, 50).equal(data.batch(0, 50)));
}

TEST_CASE("invalid mixture weights are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::vector<std::filesystem::path> files{put_counting(directory / "a", 41, 0),
                                                 put_counting(directory / "b", 41, 0)};
  const auto refusal = [&](const std::vector<double>& weights) {
    return refusal_of([&] { DataLoader(files, 10, 3000, 7, weights); });
  };
  CHECK_THAT(refusal({1.0}), is_wrong_usage("one for each of 2 files"));
  CHECK_THAT(refusal({1.0, 0.0}), is_wrong_usage("above 0"));
  CHECK_THAT(refusal({1.0, -1.0}), is_wrong_usage("above 0"));
  CHECK_THAT(refusal({1.0, std::numeric_limits<double>::infinity()}), is_wrong_usage("above 0"));
  CHECK_THAT(refusal({1.0, std::nan("")}), is_wrong_usage("above 0"));
  CHECK_THAT(refusal({1.0, 1e-9}), is_wrong_usage("/b", "weight is less"));
}

}  // namespace regroup

// How tensors are divided among shards.
#include <array>
#include <limits>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "formats/tensors/checkpoint_writer.h"

namespace regroup {
namespace {

using Counts = std::vector<std::size_t>;

// Tensors in each shard, for tensors of these numbers of bytes.
Counts shards_of(const std::vector<std::int64_t>& bytes, std::uint64_t max_bytes) {
  std::vector<OutputTensor> tensors;
  for (const std::int64_t size : bytes) {
    tensors.push_back({.name = "", .dtype = DType::kU8, .shape = {size}});
  }
  Counts counts;
  std::size_t all = 0;
  for (const auto shard : split_into_shards(tensors, max_bytes)) {
    CHECK(shard.data() == tensors.data() + all);  // in order, none left out
    all += shard.size();
    counts.push_back(shard.size());
  }
  CHECK(all == tensors.size());
  return counts;
}

TEST_CASE("a shard is filled up to exactly its size", "[formats]") {
  CHECK(shards_of({4, 6, 1}, 10) == Counts{2, 1});
  CHECK(shards_of({4, 7, 3}, 10) == Counts{1, 2});
  CHECK(shards_of({5, 5, 5, 5}, 10) == Counts{2, 2});
}

TEST_CASE("tensors larger than a shard have one each", "[formats]") {
  CHECK(shards_of({1, 30, 1, 1}, 10) == Counts{1, 1, 2});
  CHECK(shards_of({30, 30}, 10) == Counts{1, 1});
  CHECK(shards_of({2, 3}, 0) == Counts{1, 1});
}

TEST_CASE("empty tensors need no shard of their own and no tensors are one empty shard",
          "[formats]") {
  CHECK(shards_of({0, 10, 0}, 10) == Counts{3});
  CHECK(shards_of({}, 10) == Counts{0});
}

TEST_CASE("any size of shard can be asked for", "[formats]") {
  CHECK(shards_of({4, 6}, std::numeric_limits<std::uint64_t>::max()) == Counts{2});
}

}  // namespace
}  // namespace regroup

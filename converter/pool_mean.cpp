#include "converter/pool_mean.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace regroup {
namespace {

constexpr std::int64_t kChunk = 2048;  // elements at a time: sums and operands stay in cache

}  // namespace

bool pool_mean(DType dtype, std::span<const std::byte> source, const HeadBlocks& from,
               std::span<std::byte> target, const HeadBlocks& to) {
  const auto size = static_cast<std::int64_t>(bits_of(dtype) / 8);
  const std::int64_t per_group = from.heads() / to.heads();
  std::array<double, kChunk> sums;
  std::array<double, kChunk> values;
  bool finite = true;

  const auto pool_chunk = [&](std::int64_t group, std::int64_t run, std::int64_t at,
                              std::int64_t length) {
    const auto count = static_cast<std::size_t>(length);
    const auto bytes = static_cast<std::size_t>(length * size);
    std::fill_n(sums.begin(), count, 0.0);
    for (std::int64_t h = group * per_group; h < (group + 1) * per_group; ++h) {
      const std::int64_t begin = from.first[static_cast<std::size_t>(h)] + run * from.stride + at;
      decode_to_double(dtype, source.subspan(static_cast<std::size_t>(begin * size), bytes),
                       std::span(values).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        sums[i] += values[i];
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] /= static_cast<double>(per_group);
      finite = finite && std::isfinite(sums[i]);
    }
    const std::int64_t begin = to.first[static_cast<std::size_t>(group)] + run * to.stride + at;
    encode_from_double(dtype, std::span(sums).first(count),
                       target.subspan(static_cast<std::size_t>(begin * size), bytes));
  };

  for (std::int64_t group = 0; group < to.heads(); ++group) {
    for (std::int64_t run = 0; run < to.runs; ++run) {
      for (std::int64_t at = 0; at < to.run; at += kChunk) {
        pool_chunk(group, run, at, std::min(kChunk, to.run - at));
      }
    }
  }
  return finite;
}

}  // namespace regroup

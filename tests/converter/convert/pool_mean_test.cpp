// Mean pooling, compared with hand-computed numbers.
#include <cmath>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "converter/heads/heads.h"
#include "formats/model/model.h"
#include "formats/spec/model_spec.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"

namespace regroup {
namespace {

using Numbers = std::vector<std::int64_t>;
using Values = std::vector<double>;

struct Pooled {
  BuiltTensor tensor;
  bool finite;
};

Pooled pool(const BuiltTensor& source, const HeadBlocks& from, Shape shape, const HeadBlocks& to) {
  Pooled pooled{{source.name, source.dtype, shape, {}}, false};
  std::size_t elements = 1;
  for (const std::int64_t size : shape) {
    elements *= static_cast<std::size_t>(size);
  }
  pooled.tensor.bytes.assign(elements * bits_of(source.dtype) / 8, '\0');
  HeadMove move = copy_of_heads(source.name, from, to);
  move.mean_of = heads_of_groups(from.heads(), to.heads(), to.heads());
  pooled.finite = move_heads(move, source.dtype, std::as_bytes(std::span(source.bytes)),
                             source.dtype, std::as_writable_bytes(std::span(pooled.tensor.bytes)));
  return pooled;
}

// Pools a bias whose heads have one feature: the simplest case.
Pooled pool_scalars(DType dtype, const Values& heads, std::int64_t groups) {
  const auto count = static_cast<std::int64_t>(heads.size());
  Numbers from(heads.size());
  Numbers to(static_cast<std::size_t>(groups));
  for (std::size_t h = 0; h < from.size(); ++h) {
    from[h] = static_cast<std::int64_t>(h);
  }
  for (std::size_t g = 0; g < to.size(); ++g) {
    to[g] = static_cast<std::int64_t>(g);
  }
  return pool(tensor_of("bias", dtype, {count}, heads), head_blocks({count}, false, from, 1),
              {groups}, head_blocks({groups}, false, to, 1));
}

TEST_CASE("groups are blocks of neighbouring heads", "[converter]") {
  // Six heads in two groups of three, in three groups of two, in one group, and each in its own
  // group.
  const Values heads{1, 2, 6, 10, 20, 60};
  CHECK(values_of(pool_scalars(DType::kF32, heads, 2).tensor) == Values{3, 30});
  CHECK(values_of(pool_scalars(DType::kF32, heads, 3).tensor) == Values{1.5, 8, 40});
  CHECK(values_of(pool_scalars(DType::kF32, heads, 1).tensor) == Values{16.5});
  CHECK(values_of(pool_scalars(DType::kF32, heads, 6).tensor) == heads);
}

TEST_CASE("heads stored as rows are averaged element by element", "[converter]") {
  // Four heads of two features with three inputs, pooled into two groups.
  const Values source{1, 2,  3,  4,  5,  6,  3,  4,  5,  6,  7,  8,
                      0, 10, 20, 30, 40, 50, 10, 20, 30, 40, 50, 60};
  const Pooled pooled = pool(tensor_of("w", DType::kF32, {8, 3}, source),
                             head_blocks({8, 3}, false, Numbers{0, 2, 4, 6}, 2), {4, 3},
                             head_blocks({4, 3}, false, Numbers{0, 2}, 2));
  CHECK(values_of(pooled.tensor) == Values{2, 3, 4, 5, 6, 7, 5, 15, 25, 35, 45, 55});
}

TEST_CASE("heads stored as columns are averaged element by element", "[converter]") {
  // Two inputs. The features q | k0 k1 k2 k3, one per head, become q | g0 g1. q is not changed.
  const Values source{7, 1, 3, 10, 30, 8, 2, 4, 20, 40};
  const Pooled pooled = pool(tensor_of("w", DType::kF32, {2, 5}, source),
                             head_blocks({2, 5}, true, Numbers{1, 2, 3, 4}, 1), {2, 3},
                             head_blocks({2, 3}, true, Numbers{1, 2}, 1));
  CHECK(values_of(pooled.tensor) == Values{0, 2, 20, 0, 3, 30});
}

TEST_CASE("heads longer than the summing block are averaged completely", "[converter]") {
  constexpr std::size_t kLong = 5000;
  Values source(2 * kLong);
  for (std::size_t i = 0; i < kLong; ++i) {
    source[i] = static_cast<double>(i);
    source[kLong + i] = static_cast<double>(3 * i);
  }
  const Pooled pooled = pool(tensor_of("b", DType::kF64, {10'000}, source),
                             head_blocks({10'000}, false, Numbers{0, 5000}, 5000), {5000},
                             head_blocks({5000}, false, Numbers{0}, 5000));
  const Values values = values_of(pooled.tensor);
  for (std::size_t i = 0; i < kLong; ++i) {
    REQUIRE(values[i] == static_cast<double>(2 * i));
  }
}

TEST_CASE("a mean half way between two numbers rounds to even", "[converter]") {
  // In bf16, 1 and 1 + 2^-7 are neighbours, and so are 1 + 2^-7 and 1 + 2^-6.
  CHECK(values_of(pool_scalars(DType::kBF16, {1, 1 + 0x1p-7}, 1).tensor) == Values{1});
  CHECK(values_of(pool_scalars(DType::kBF16, {1 + 0x1p-7, 1 + 0x1p-6}, 1).tensor) ==
        Values{1 + 0x1p-6});
  CHECK(values_of(pool_scalars(DType::kF16, {1, 1 + 0x1p-10}, 1).tensor) == Values{1});
}

TEST_CASE("sums do not lose digits that a float would lose", "[converter]") {
  // A float sum would lose the 1 next to 2^24 and overflow at three times 2^127.
  CHECK(values_of(pool_scalars(DType::kF32, {0x1p24, 1, -0x1p24, 1}, 1).tensor) == Values{0.5});
  CHECK(values_of(pool_scalars(DType::kF32, {0x1p127, 0x1p127, 0x1p127}, 1).tensor) ==
        Values{0x1p127});
  CHECK(values_of(pool_scalars(DType::kF16, {65504, 65504}, 1).tensor) == Values{65504});
  // Slightly above half way, which a float sum would lose: 1 + 2^-8 + 2^-30 in bf16.
  CHECK(
      values_of(pool_scalars(
                    DType::kBF16,
                    {1, 1 + 0x1p-7, 1, 1 + 0x1p-7, 0x1p-30, 2 + 0x1p-6, -2 - 0x1p-6, 2 + 0x1p-7}, 1)
                    .tensor) == Values{0.75 + 0x1p-8});
}

TEST_CASE("equal heads are pooled without loss to the last bit", "[converter]") {
  // In F64 the sum of more than two heads may be rounded itself.
  for (const auto& [dtype, most] : {std::pair{DType::kF16, 71U}, std::pair{DType::kBF16, 71U},
                                    std::pair{DType::kF32, 71U}, std::pair{DType::kF64, 2U}}) {
    for (const double value : {0.0, 0.1, -1.0 / 3.0, 1e-7, -5e-324, 1000.5, 65000.0}) {
      for (const std::size_t heads : {1U, 2U, 3U, 4U, 7U, 8U, 12U, 71U}) {
        if (heads <= most) {
          CAPTURE(name_of(dtype), value, heads);
          const Values stored = values_of(tensor_of("b", dtype, {1}, Values{value}));
          const Pooled pooled = pool_scalars(dtype, Values(heads, stored[0]), 1);
          CHECK(values_of(pooled.tensor) == stored);
        }
      }
    }
  }
}

TEST_CASE("the mean of negative zeros is zero", "[converter]") {
  const Values mean = values_of(pool_scalars(DType::kBF16, {-0.0, -0.0}, 1).tensor);
  CHECK(mean == Values{0.0});
  CHECK_FALSE(std::signbit(mean[0]));
}

TEST_CASE("NaN and infinities are reported at every position", "[converter]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), kInfinity, -kInfinity}) {
    for (std::size_t at = 0; at < 4; ++at) {
      Values heads{1, 2, 3, 4};
      heads[at] = bad;
      for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
        const Pooled pooled = pool_scalars(dtype, heads, 2);
        CHECK_FALSE(pooled.finite);
        const Values values = values_of(pooled.tensor);
        CHECK_FALSE(std::isfinite(values[at / 2]));
        CHECK(values[1 - at / 2] == (at < 2 ? 3.5 : 1.5));
      }
    }
  }
  CHECK(pool_scalars(DType::kF32, {1, 2}, 1).finite);
  CHECK_FALSE(pool_scalars(DType::kF32, {kInfinity, -kInfinity}, 1).finite);
}

// pooled.safetensors has exact means rounded once. The results must equal it bit for bit in every
// dtype and grouping.
void check_against_golden(std::string_view name, std::int64_t heads, std::int64_t groups) {
  const Checkpoint source = open_checkpoint(golden(name) / "model.safetensors");
  const Checkpoint expected = open_checkpoint(golden(name) / "pooled.safetensors");
  const std::string prefix = fmt::format("g{}/", groups);
  int compared = 0;
  for (const TensorInfo& target : expected.tensors()) {
    if (!target.name.starts_with(prefix)) {
      continue;
    }
    CAPTURE(target.name);
    const TensorInfo& info = source.at(target.name.substr(prefix.size()));
    const std::int64_t head_dim = info.shape[0] / heads;
    const auto firsts = [&](std::int64_t count) {
      return head_features(Packing::kSeparate, heads, count, head_dim).k;
    };
    const BuiltTensor tensor{info.name, info.dtype, info.shape, bytes_of(source, info.name)};
    const Pooled pooled =
        pool(tensor, head_blocks(info.shape, false, firsts(heads), head_dim), target.shape,
             head_blocks(target.shape, false, firsts(groups), head_dim));
    CHECK((pooled.tensor.bytes == bytes_of(expected, target.name)));
    ++compared;
  }
  CHECK(compared >= 4);
}

TEST_CASE("pooling equals exact arithmetic rounded once", "[converter]") {
  check_against_golden("llama_bf16", 12, 4);
  check_against_golden("llama_bf16", 12, 1);
  check_against_golden("llama_fp16", 12, 4);
  check_against_golden("llama_fp16", 12, 1);
  check_against_golden("llama_mha", 6, 3);
  check_against_golden("llama_mha", 6, 2);
}

// Converts one number from one dtype to another.
std::string converted(DType from, double value, DType to, bool* finite = nullptr) {
  const HeadBlocks one = head_blocks({1}, false, Numbers{0}, 1);
  BuiltTensor result{"t", to, {1}, std::string(bits_of(to) / 8, '\0')};
  const BuiltTensor source = tensor_of("t", from, {1}, Values{value});
  const bool fits =
      move_heads(copy_of_heads("t", one, one), from, std::as_bytes(std::span(source.bytes)), to,
                 std::as_writable_bytes(std::span(result.bytes)));
  if (finite != nullptr) {
    *finite = fits;
  }
  return result.bytes;
}

TEST_CASE("dtype conversion rounds once", "[converter]") {
  CHECK((converted(DType::kBF16, -0.0, DType::kF32) ==
         tensor_of("t", DType::kF32, {1}, Values{-0.0}).bytes));
  CHECK((converted(DType::kF32, 1 + 0x1p-8, DType::kBF16) ==
         tensor_of("t", DType::kBF16, {1}, Values{1}).bytes));
  bool finite = true;
  converted(DType::kF32, 65519.0, DType::kF16, &finite);
  CHECK(finite);
  converted(DType::kF32, 65520.0, DType::kF16, &finite);
  CHECK_FALSE(finite);
  converted(DType::kF64, 1e39, DType::kBF16, &finite);
  CHECK_FALSE(finite);
}

}  // namespace
}  // namespace regroup

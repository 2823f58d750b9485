// Elements of tensors in every type, their statistics and the difference between two tensors.
#include <cmath>
#include <limits>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/model/model_directory.h"
#include "formats/model/tensor_comparison.h"
#include "formats/tensors/tensor_reader.h"
#include "tests/checkpoint_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

constexpr double kPositiveInfinity = std::numeric_limits<double>::infinity();

std::vector<double> read(DType dtype, const std::string& bytes, std::size_t elements) {
  std::vector<double> values(elements);
  read_values(dtype, std::as_bytes(std::span(bytes)), values);
  return values;
}

using Values = std::vector<double>;

// Codes from table 1 of https://arxiv.org/abs/2209.05433 and from ml_dtypes.
TEST_CASE("floats of 8 bits and fewer are decoded", "[formats]") {
  CHECK(read(DType::kF8E4M3, "\x7e\xfe\x01\x38\x08", 5) == Values{448, -448, 0x1p-9, 1.0, 0x1p-6});
  CHECK(std::isnan(read(DType::kF8E4M3, "\x7f", 1)[0]));
  CHECK(read(DType::kF8E5M2, "\x7b\x01\x3c\x7c\xfc", 5) ==
        Values{57344, 0x1p-16, 1.0, kPositiveInfinity, -kPositiveInfinity});
  CHECK(std::isnan(read(DType::kF8E5M2, "\x7d", 1)[0]));
  CHECK(read(DType::kF8E4M3Fnuz, "\x7f\x01\x40", 3) == Values{240, 0x1p-10, 1.0});
  CHECK(read(DType::kF8E5M2Fnuz, "\x7f\x01\x40", 3) == Values{57344, 0x1p-17, 1.0});
  CHECK(std::isnan(read(DType::kF8E5M2Fnuz, "\x80", 1)[0]));
  CHECK(read(DType::kF8E8M0, "\x7f\x80", 2) == Values{1.0, 2.0});
  CHECK(read(DType::kF4, "\x72\xf9", 4) == Values{1.0, 6.0, -0.5, -6.0});
}

TEST_CASE("integers and booleans are decoded", "[formats]") {
  CHECK(read(DType::kI8, "\x80\x7f", 2) == Values{-128, 127});
  CHECK(read(DType::kU8, "\xff", 1) == Values{255});
  CHECK(read(DType::kBool, std::string("\x00\x01", 2), 2) == Values{0, 1});
  CHECK(read(DType::kI16, "\xfe\xff", 1) == Values{-2});
  CHECK(read(DType::kU32, "\xff\xff\xff\xff", 1) == Values{4294967295.0});
  CHECK(read(DType::kI64, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), 1) == Values{-1});
  CHECK_FALSE(can_read_values(DType::kC64));
  CHECK_THAT(refusal_of([] { read(DType::kI16, "abc", 1); }), is_wrong_usage("I16"));
}

Checkpoint open_with(const TemporaryDirectory& directory, const std::vector<BuiltTensor>& tensors,
                     const char* name = "w.safetensors") {
  put_checkpoint(directory / name, tensors);
  return open_checkpoint(directory / name);
}

TEST_CASE("statistics cover finite elements and count the others", "[formats]") {
  const TemporaryDirectory directory;
  const double nan = std::nan("");
  const Checkpoint checkpoint =
      open_with(directory, {tensor_of("a", DType::kF32, {2, 3},
                                      Values{3, -4, nan, kPositiveInfinity, 0, -kPositiveInfinity}),
                            tensor_of("b", DType::kBF16, {2}, Values{nan, nan})});
  const TensorStatistics a = statistics_of(checkpoint, checkpoint.at("a"));
  CHECK(a.elements == 6);
  CHECK(a.nan == 1);
  CHECK(a.infinite == 2);
  CHECK(a.minimum == -4);
  CHECK(a.maximum == 3);
  CHECK(a.largest == 4);
  CHECK(a.norm == 5);
  CHECK_FALSE(a.finite());
  const TensorStatistics b = statistics_of(checkpoint, checkpoint.at("b"));
  CHECK(b.nan == 2);
  CHECK(b.largest == 0);
}

TEST_CASE("statistics cover all parts of a large tensor", "[formats]") {
  const TemporaryDirectory directory;
  Values values(2 * kElementsAtATime + 5, 1.0);
  values.front() = -7;
  values.back() = 9;
  const Checkpoint checkpoint = open_with(
      directory, {tensor_of("x", DType::kF16, {static_cast<std::int64_t>(values.size())}, values)});
  std::uint64_t told = 0;
  const TensorStatistics found =
      statistics_of(checkpoint, checkpoint.at("x"), [&](std::uint64_t bytes) { told += bytes; });
  CHECK(found.minimum == -7);
  CHECK(found.maximum == 9);
  CHECK(found.norm == std::sqrt(static_cast<double>(values.size() - 2) + 49 + 81));
  CHECK(told == 2 * values.size());
}

TEST_CASE("tensors of unreadable dtypes are compared by bytes", "[formats]") {
  const TemporaryDirectory directory;
  const std::vector tensors{BuiltTensor{"x", DType::kC64, {2}, std::string(16, 'c')}};
  const Checkpoint a = open_with(directory, tensors, "a.safetensors");
  auto changed = tensors;
  changed[0].bytes[15] = 'd';
  const Checkpoint b = open_with(directory, changed, "b.safetensors");
  CHECK(compare_tensors({a, a.at("x")}, {a, a.at("x")}).same_bytes);
  const TensorComparison found = compare_tensors({a, a.at("x")}, {b, b.at("x")});
  CHECK_FALSE(found.same_bytes);
  CHECK_FALSE(found.readable);
}

TEST_CASE("differences of values equal hand-computed ones", "[formats]") {
  const TemporaryDirectory directory;
  const Checkpoint a = open_with(directory, {tensor_of("x", DType::kF32, {4}, Values{1, 0, 2, -2})},
                                 "a.safetensors");
  const Checkpoint b = open_with(directory, {tensor_of("x", DType::kF64, {4}, Values{1, 0, 0, -1})},
                                 "b.safetensors");
  const TensorComparison found = compare_tensors({a, a.at("x")}, {b, b.at("x")});
  CHECK(found.elements == 4);
  CHECK(found.different == 2);
  CHECK(found.largest == 2);
  CHECK(found.mean == 0.75);
  CHECK(found.cosine == Catch::Approx(3 / (3 * std::sqrt(2.0))));  // (1 + 2) / (√9 √2)
}

TEST_CASE("equal values of two types differ only in dtype", "[formats]") {
  const TemporaryDirectory directory;
  const Values values{0.5, -3, 7};
  const Checkpoint a =
      open_with(directory, {tensor_of("x", DType::kF32, {3}, values)}, "a.safetensors");
  const Checkpoint b =
      open_with(directory, {tensor_of("x", DType::kBF16, {3}, values)}, "b.safetensors");
  const TensorComparison found = compare_tensors({a, a.at("x")}, {b, b.at("x")});
  CHECK_FALSE(found.same_bytes);
  CHECK(found.readable);
  CHECK(found.different == 0);
  CHECK(found.cosine == 1.0);
}

TEST_CASE("NaN against a number is an infinite difference and NaN against NaN is none",
          "[formats]") {
  const TemporaryDirectory directory;
  const double nan = std::nan("");
  const Checkpoint a =
      open_with(directory, {tensor_of("x", DType::kF32, {3}, Values{nan, 1, 2})}, "a.safetensors");
  const Checkpoint b =
      open_with(directory, {tensor_of("x", DType::kF32, {3}, Values{nan, 1, 3})}, "b.safetensors");
  const Checkpoint c =
      open_with(directory, {tensor_of("x", DType::kF32, {3}, Values{0, 1, 2})}, "c.safetensors");
  CHECK(compare_tensors({a, a.at("x")}, {b, b.at("x")}).largest == 1);
  CHECK(compare_tensors({a, a.at("x")}, {c, c.at("x")}).largest == kPositiveInfinity);
}

TEST_CASE("a difference in the last part is found and each byte is reported once", "[formats]") {
  const TemporaryDirectory directory;
  Values values(kElementsAtATime + 3, 0.25);
  const Shape shape{static_cast<std::int64_t>(values.size())};
  const Checkpoint a = open_with(directory, {tensor_of("x", DType::kF16, shape, values)}, "a");
  values.back() = 0.5;
  const Checkpoint b = open_with(directory, {tensor_of("x", DType::kF16, shape, values)}, "b");
  std::uint64_t told = 0;
  const TensorComparison found =
      compare_tensors({a, a.at("x")}, {b, b.at("x")}, [&](std::uint64_t bytes) { told += bytes; });
  CHECK(found.different == 1);
  CHECK(found.largest == 0.25);
  CHECK(told == 2 * values.size());
}

}  // namespace
}  // namespace regroup

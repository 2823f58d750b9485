// Tensors computed in parts: the same bytes from little memory.
#include "converter/convert/tensor_parts.h"

#include <cmath>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "tests/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Numbers = std::vector<std::int64_t>;

// The keys [6·4, 5] of six heads of four features in a file.
class Keys {
 public:
  explicit Keys(DType dtype = DType::kBF16) : Keys(varied_tensor("k", dtype, {24, 5})) {}
  explicit Keys(const BuiltTensor& keys) : type_(keys.dtype) {
    put_checkpoint(directory_ / "model.safetensors", std::vector{keys});
    checkpoint_.emplace(open_checkpoint(directory_.path()));
  }

  const Checkpoint& checkpoint() const { return *checkpoint_; }

  // The mean of each group's heads as its own tensor.
  TensorStep mean(std::int64_t groups, DType result) const {
    const Shape shape{4 * groups, 5};
    Numbers from, to;
    for (std::int64_t head = 0; head < 6; ++head) {
      from.push_back(4 * head);
    }
    for (std::int64_t group = 0; group < groups; ++group) {
      to.push_back(4 * group);
    }
    HeadMove move{.source = "k",
                  .from = head_blocks({24, 5}, false, from, 4),
                  .to = head_blocks(shape, false, to, 4),
                  .mean_of = heads_of_groups(6, groups, groups)};
    return {
        .output = {"k", result, shape}, .copy_of = {}, .moves = {move}, .values = {}, .fold = {}};
  }

  std::string whole(const TensorStep& step) const {
    std::string result(tensor_bytes(step.output.dtype, step.output.shape), '\0');
    const std::string source = bytes_of(*checkpoint_, "k");
    for (const HeadMove& move : step.moves) {
      move_heads(move, type_, std::as_bytes(std::span(source)), step.output.dtype,
                 std::as_writable_bytes(std::span(result)));
    }
    return result;
  }

 private:
  TemporaryDirectory directory_;
  DType type_;
  std::optional<Checkpoint> checkpoint_;
};

struct Made {
  std::string bytes;
  std::size_t parts = 0;
  std::size_t non_finite = 0;
};

Made made_in_parts(const TensorStep& step, const Checkpoint& checkpoint, std::uint64_t part_bytes) {
  Made made;
  const std::vector<TensorPart> parts = parts_of(step, checkpoint, part_bytes);
  make_parts(
      parts, step, checkpoint,
      [&](std::span<const std::byte> part) {
        made.bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
        ++made.parts;
      },
      [&](const TensorInfo& source) { made.non_finite += source.name == "k" ? 1 : 0; });
  return made;
}

TEST_CASE("averaging in parts equals averaging the whole tensor", "[converter]") {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Keys keys(dtype);
    for (const std::int64_t groups : {1, 2, 3, 6}) {
      for (const std::uint64_t bytes : {1, 13, 40, 200}) {
        CAPTURE(name_of(dtype), groups, bytes);
        const TensorStep step = keys.mean(groups, dtype);
        CHECK(made_in_parts(step, keys.checkpoint(), bytes).bytes == keys.whole(step));
      }
    }
  }
}

TEST_CASE("a part reads no more bytes than requested", "[converter]") {
  const Keys keys;
  const TensorStep step = keys.mean(2, DType::kF32);
  const auto parts = parts_of(step, keys.checkpoint(), 60);  // ten elements of three heads
  CHECK(parts.size() == 4);
  CHECK(bytes_at_once(parts, step, keys.checkpoint()) == 60 + 10 * 4);
  CHECK(made_in_parts(step, keys.checkpoint(), 60).bytes == keys.whole(step));
}

TEST_CASE("heads with reordered features are not divided", "[converter]") {
  const Keys keys;
  TensorStep step = keys.mean(3, DType::kBF16);
  step.moves.front().row_order = {0, 2, 1, 3};
  const Made made = made_in_parts(step, keys.checkpoint(), 10);
  CHECK(made.parts == 3);
  CHECK(made.bytes == keys.whole(step));
  CHECK(made.bytes != keys.whole(keys.mean(3, DType::kBF16)));
}

TEST_CASE("heads with elements smaller than a byte are not divided", "[converter]") {
  std::string bytes;
  for (char byte = 0; byte < 60; ++byte) {
    bytes.push_back(byte);
  }
  const Keys keys(BuiltTensor{"k", DType::kF4, {24, 5}, bytes});
  const Made made = made_in_parts(keys.mean(6, DType::kF4), keys.checkpoint(), 4);
  CHECK(made.parts == 6);
  CHECK(made.bytes == bytes);
}

TEST_CASE("parts follow the order of the result across moves", "[converter]") {
  const Keys keys;
  // The last three heads are copied to places between the mean of the first three and the mean of
  // all.
  TensorStep step = keys.mean(1, DType::kBF16);
  step.output.shape = {20, 5};
  const HeadBlocks from = step.moves.front().from;
  const auto place = [](const Numbers& features) {
    return head_blocks({20, 5}, false, features, 4);
  };
  step.moves = {{"k", from, place({0, 16}), {{0, 1, 2}, {0, 1, 2, 3, 4, 5}}},
                {"k", from, place({4, 8, 12}), {{3}, {4}, {5}}}};
  CHECK(made_in_parts(step, keys.checkpoint(), 32).bytes == keys.whole(step));
}

TEST_CASE("non-finite numbers are reported in every part", "[converter]") {
  std::vector<double> values(120, 0.5);
  values[119] = std::nan("");
  const Keys keys(tensor_of("k", DType::kF32, {24, 5}, values));
  CHECK(made_in_parts(keys.mean(2, DType::kF32), keys.checkpoint(), 24).non_finite == 1);
  CHECK(made_in_parts(Keys().mean(2, DType::kF32), Keys().checkpoint(), 24).non_finite == 0);
}

TEST_CASE("tensors that cannot be computed in parts are computed whole", "[converter]") {
  const Keys keys;
  const auto parts = [&](auto change) {
    TensorStep step = keys.mean(2, DType::kBF16);
    change(step);
    return parts_of(step, keys.checkpoint(), 16).size();
  };
  CHECK(parts([](TensorStep&) {}) > 0);
  CHECK(parts([](TensorStep& step) { step.add = 1.0; }) == 0);
  CHECK(parts([](TensorStep& step) { step.fold.emplace(); }) == 0);
  CHECK(parts([](TensorStep& step) { step.moves.front().pooled.emplace(); }) == 0);
  CHECK(parts([](TensorStep& step) { step.output.shape = {9, 5}; }) == 0);  // a row of zeros
  CHECK(parts([](TensorStep& step) { step.moves.front().to.column_stride = 2; }) == 0);
  CHECK(parts_of(keys.mean(2, DType::kBF16), keys.checkpoint(), 240).empty());  // small enough
}

}  // namespace
}  // namespace regroup

// Meta's weight files: ranks are joined into whole tensors or refused.
#include <limits>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "formats/tensors/checkpoint_writer.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<double>;

void put_rank(const fs::path& directory, const std::string& number,
              const std::vector<BuiltTensor>& tensors) {
  // These are safetensors in fact: the reader goes by the bytes.
  put_checkpoint(directory / ("consolidated." + number + ".pth"), tensors);
}

BuiltTensor f32(std::string name, Shape shape, const Values& values) {
  return tensor_of(std::move(name), DType::kF32, std::move(shape), values);
}

// Rows of 2 features. Rank 0 has the first feature; `more` is in both.
void put_two_ranks(const fs::path& directory, const BuiltTensor& first, const BuiltTensor& second) {
  const BuiltTensor norm = f32("norm.weight", {2}, {8, 9});
  put_rank(directory, "00", {first, norm});
  put_rank(directory, "01", {second, norm});
  put_file(directory / "params.json", "{}");
}

Values joined(const std::string& name, Shape shape, const Values& first, const Values& second) {
  const TemporaryDirectory directory;
  put_two_ranks(directory.path(), f32(name, shape, first), f32(name, shape, second));
  return values_of(open_checkpoint(directory.path()), name);
}

TEST_CASE("ranks are joined along the dimension that Meta splits", "[formats]") {
  for (const char* name : {"layers.0.attention.wq.weight", "layers.0.attention.wk.weight",
                           "layers.0.attention.wv.weight", "layers.0.feed_forward.w1.weight",
                           "layers.0.feed_forward.w3.weight", "output.weight"}) {
    CAPTURE(name);
    CHECK(joined(name, {2, 2}, {0, 1, 2, 3}, {4, 5, 6, 7}) == Values{0, 1, 2, 3, 4, 5, 6, 7});
  }
  for (const char* name : {"layers.0.attention.wo.weight", "layers.11.feed_forward.w2.weight"}) {
    CAPTURE(name);
    CHECK(joined(name, {2, 2}, {0, 1, 2, 3}, {4, 5, 6, 7}) == Values{0, 1, 4, 5, 2, 3, 6, 7});
  }
  // Meta splits the embedding by columns up to Llama 2 and by rows since Llama 3. The width shows
  // which.
  CHECK(joined("tok_embeddings.weight", {3, 1}, {0, 1, 2}, {3, 4, 5}) == Values{0, 3, 1, 4, 2, 5});
  CHECK(joined("tok_embeddings.weight", {1, 2}, {0, 1}, {2, 3}) == Values{0, 1, 2, 3});
}

TEST_CASE("ranks are joined when some of them are empty", "[formats]") {
  const std::string name = "layers.0.attention.wo.weight";
  CHECK(joined(name, {0, 2}, {}, {}).empty());
  const TemporaryDirectory directory;
  put_two_ranks(directory.path(), f32(name, {2, 0}, {}), f32(name, {2, 1}, {4, 5}));
  const Checkpoint checkpoint = open_checkpoint(directory.path());
  CHECK(checkpoint.at(name).shape == Shape{2, 1});
  CHECK(values_of(checkpoint, name) == Values{4, 5});
}

// A rank as torch saves a transposed view: 2 rows of 3, stored column by column.
std::string rank_with_columns(const std::string& name, const Values& columns) {
  const std::string matrix = pickle::storage("FloatStorage", "0", 6);
  const std::string list = pickle::storage("FloatStorage", "1", 3);
  return torch_archive(pickle::program(pickle::dict(
                           {pickle::text(name), pickle::tensor({matrix, 0, {2, 3}, {1, 2}}),
                            pickle::text("norm.weight"), pickle::tensor({list, 0, {3}, {1}})})),
                       {f32(name, {6}, columns).bytes, f32("norm", {3}, {7, 8, 9}).bytes})
      .bytes();
}

TEST_CASE("strided pieces have no byte ranges but read correctly", "[formats]") {
  const TemporaryDirectory directory;
  const std::string name = "output.weight";
  put_file(directory / "consolidated.00.pth", rank_with_columns(name, {0, 3, 1, 4, 2, 5}));
  put_file(directory / "consolidated.01.pth", rank_with_columns(name, {6, 9, 7, 10, 8, 11}));
  put_file(directory / "params.json", "{}");
  const Checkpoint checkpoint = open_checkpoint(directory.path());
  CHECK(ranges_of(checkpoint.at(name)).empty());
  CHECK(values_of(checkpoint, name) == Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

TEST_CASE("norms are taken from the first rank and RoPE's frequencies are left out", "[formats]") {
  const TemporaryDirectory directory;
  put_two_ranks(directory.path(), f32("rope.freqs", {1}, {0}), f32("rope.freqs", {1}, {0}));
  const Checkpoint checkpoint = open_checkpoint(directory.path());
  REQUIRE(checkpoint.tensors().size() == 1);
  CHECK(values_of(checkpoint, "norm.weight") == Values{8, 9});
  CHECK(checkpoint.files().size() == 2);
}

TEST_CASE("a joined tensor has the byte ranges of its pieces and is copied whole", "[formats]") {
  const TemporaryDirectory directory;
  const std::string rows = "output.weight";
  const std::string columns = "layers.0.attention.wo.weight";
  const BuiltTensor norm = f32("norm.weight", {2}, {8, 9});
  put_rank(directory.path(), "00", {f32(rows, {1, 2}, {0, 1}), f32(columns, {2, 1}, {4, 5}), norm});
  put_rank(directory.path(), "01", {f32(rows, {1, 2}, {2, 3}), f32(columns, {2, 1}, {6, 7}), norm});
  put_file(directory / "params.json", "{}");
  const Checkpoint source = open_checkpoint(directory.path());
  CHECK_FALSE(source.at(rows).contiguous());
  CHECK(source.at(rows).bytes() == 16);
  CHECK(source.at(rows).shape == Shape{2, 2});
  CHECK(ranges_of(source.at(rows)).size() == 2);
  CHECK(ranges_of(source.at(columns)).empty());
  CHECK(ranges_of(source.at("norm.weight")).size() == 1);

  const std::vector<OutputTensor> outputs{{rows, DType::kF32, {2, 2}},
                                          {columns, DType::kF32, {2, 2}}};
  fs::create_directory(directory / "copy");
  SafetensorsWriter safetensors(directory / "copy", outputs, {});
  TorchWriter torch(directory / "copy", outputs);
  for (CheckpointWriter* writer :
       {static_cast<CheckpointWriter*>(&safetensors), static_cast<CheckpointWriter*>(&torch)}) {
    writer->copy(rows, source, source.at(rows));
    writer->copy(columns, source, source.at(columns));
    writer->finish();
  }
  for (const char* file : {"model.safetensors", "pytorch_model.bin"}) {
    const Checkpoint copy = open_checkpoint(directory / "copy" / file);
    CHECK(values_of(copy, rows) == Values{0, 1, 2, 3});
    CHECK(values_of(copy, columns) == Values{4, 6, 5, 7});
  }
}

TEST_CASE("ranks that do not fit together are refused with the tensor's name", "[formats]") {
  const auto refused = [](const BuiltTensor& first, const BuiltTensor& second) {
    const TemporaryDirectory directory;
    put_two_ranks(directory.path(), first, second);
    return refusal_of([&] { open_checkpoint(directory.path()); });
  };
  const std::string name = "output.weight";
  CHECK_THAT(refused(f32(name, {1, 2}, {0, 1}), f32(name, {1, 1}, {0})),
             is_bad_input(name, "[1, 2]", "[1, 1]"));
  CHECK_THAT(refused(f32(name, {1, 2}, {0, 1}), f32(name, {2}, {0, 1})), is_bad_input(name));
  CHECK_THAT(refused(f32(name, {1, 1}, {0}), tensor_of(name, DType::kF16, {1, 1}, Values{0})),
             is_bad_input(name, "F32", "F16"));
  CHECK_THAT(refused(f32(name, {1, 1}, {0}), f32("other.weight", {1, 1}, {0})),
             is_bad_input(name, "missing in consolidated.01.pth"));
  CHECK_THAT(refused(f32("rope.freqs", {1}, {0}), f32(name, {1, 1}, {0})),
             is_bad_input(name, "missing in consolidated.00.pth"));
  CHECK_THAT(refused(f32("experts.w", {1, 1}, {0}), f32("experts.w", {1, 1}, {0})),
             is_bad_input("experts.w", "unknown"));
  // A 1-D tensor that is not a norm may be split too.
  CHECK_THAT(refused(f32("wq.bias", {1}, {0}), f32("wq.bias", {1}, {0})),
             is_bad_input("wq.bias", "unknown"));
  CHECK_THAT(refused(f32("a_norm.weight", {1}, {0}), f32("a_norm.weight", {2}, {0, 1})),
             is_bad_input("a_norm.weight", "unknown"));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK_THAT(refused(f32(name, {kMost, 0}, {}), f32(name, {1, 0}, {})),
             is_bad_input(name, "[9223372036854775807, 0] and [1, 0] cannot be joined"));
}

TEST_CASE("a final norm that is not one-dimensional is refused", "[formats]") {
  const TemporaryDirectory directory;
  put_rank(directory.path(), "00", {f32("norm.weight", {1, 2}, {8, 9})});
  put_file(directory / "params.json", "{}");
  CHECK_THAT(refusal_of([&] { open_checkpoint(directory.path()); }),
             is_bad_input("norm.weight", "not a list of numbers"));
}

TEST_CASE("params.json and a rank make a Meta directory but other consolidated files do not",
          "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "params.json", "{}");
  CHECK_FALSE(is_meta_directory(directory.path()));
  put_file(directory / "consolidated.00.pth.sha256", "sums");
  CHECK_FALSE(is_meta_directory(directory.path()));
  put_rank(directory.path(), "00", {f32("norm.weight", {2}, {8, 9})});
  CHECK(is_meta_directory(directory.path()));
  CHECK(open_checkpoint(directory.path()).files().size() == 1);
}

TEST_CASE("more than 100 ranks are refused", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "params.json", "{}");
  for (int i = 0; i <= 100; ++i) {
    put_file(directory / fmt::format("consolidated.{:02}.pth", i), "");
  }
  CHECK_THAT(refusal_of([&] { open_checkpoint(directory.path()); }),
             is_bad_input(directory.path().string(), "101 consolidated files", "at most 100"));
}

TEST_CASE("a missing rank and a missing norm are refused", "[formats]") {
  const TemporaryDirectory directory;
  put_two_ranks(directory.path(), f32("a", {1}, {0}), f32("a", {1}, {0}));
  fs::rename(directory / "consolidated.00.pth", directory / "consolidated.02.pth");
  CHECK_THAT(refusal_of([&] { open_checkpoint(directory.path()); }),
             is_bad_input("2 consolidated files", "consolidated.00.pth is missing"));
  const TemporaryDirectory other;
  put_rank(other.path(), "00", {f32("a", {1}, {0})});
  put_file(other / "params.json", "{}");
  CHECK_THAT(refusal_of([&] { open_checkpoint(other.path()); }), is_bad_input("norm.weight"));
}

}  // namespace
}  // namespace regroup

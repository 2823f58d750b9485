#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/base/json.h"
#include "formats/model/model_directory.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/safetensors.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

const std::vector<BuiltTensor> kTensors{
    varied_tensor("b", DType::kF32, {2, 3}), varied_tensor("a", DType::kBF16, {5}),
    varied_tensor("empty", DType::kF16, {0, 4}), varied_tensor("scalar", DType::kF64, {})};

void write_all(const std::filesystem::path& directory, std::uint64_t max_shard_bytes) {
  SafetensorsWriter writer(directory, announced(kTensors), {{"who", "test"}}, max_shard_bytes);
  CHECK(writer.total_bytes() == 24 + 10 + 0 + 8);
  for (auto tensor = kTensors.rbegin(); tensor != kTensors.rend(); ++tensor) {
    writer.write(tensor->name, as_span(tensor->bytes));  // in any order
  }
  writer.finish();
}

TEST_CASE("a single file reads back in the announced order", "[formats]") {
  const TemporaryDirectory directory;
  write_all(directory.path(), kDefaultShardBytes);
  CHECK((tree_of(directory.path()).size() == 1));
  const Checkpoint checkpoint = open_checkpoint(directory.path());
  REQUIRE(checkpoint.tensors().size() == kTensors.size());
  for (const BuiltTensor& tensor : kTensors) {
    CHECK((bytes_of(checkpoint, tensor.name) == tensor.bytes));
    CHECK(checkpoint.at(tensor.name).shape == tensor.shape);
  }
  CHECK(checkpoint.tensors()[0].name == "b");
  CHECK(checkpoint.metadata().at("format") == "pt");
  CHECK(checkpoint.metadata().at("who") == "test");
}

TEST_CASE("writer splits into shards up to the requested size and writes an index", "[formats]") {
  const TemporaryDirectory directory;
  write_all(directory.path(), 24);
  const auto tree = tree_of(directory.path());
  REQUIRE(tree.size() == 3);
  const Json index = Json::parse(tree.at("model.safetensors.index.json"));
  CHECK(index["metadata"]["total_size"] == 42);
  CHECK(index["weight_map"]["b"] == "model-00001-of-00002.safetensors");
  CHECK(index["weight_map"]["a"] == "model-00002-of-00002.safetensors");
  CHECK(index["weight_map"]["scalar"] == "model-00002-of-00002.safetensors");
  const Checkpoint checkpoint = open_checkpoint(directory.path());
  for (const BuiltTensor& tensor : kTensors) {
    CHECK((bytes_of(checkpoint, tensor.name) == tensor.bytes));
  }
  for (const char* shard :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    CHECK(open_safetensors(directory / shard).metadata.at("format") == "pt");
  }
}

TEST_CASE("a tensor larger than the shard size gets its own shard", "[formats]") {
  const TemporaryDirectory directory;
  write_all(directory.path(), 1);
  const Checkpoint checkpoint = open_checkpoint(directory.path());
  CHECK(checkpoint.files().size() == 3);  // the empty tensor shares one
  CHECK((bytes_of(checkpoint, "b") == kTensors[0].bytes));
}

TEST_CASE("writer copies a tensor byte for byte from another checkpoint", "[formats]") {
  const TemporaryDirectory directory;
  put_checkpoint(directory / "source.safetensors", kTensors);
  const Checkpoint source = open_checkpoint(directory / "source.safetensors");
  std::filesystem::create_directory(directory / "out");
  SafetensorsWriter writer(directory / "out", announced(kTensors), {});
  for (const TensorInfo& tensor : source.tensors()) {
    writer.copy(tensor.name, source, tensor);
  }
  writer.finish();
  const Checkpoint copy = open_checkpoint(directory / "out");
  for (const BuiltTensor& tensor : kTensors) {
    CHECK((bytes_of(copy, tensor.name) == tensor.bytes));
  }
}

// Two large tensors copied from files and a small one computed between them.
std::vector<OutputTensor> copied_tensors(const ByteRange& first, const ByteRange& second) {
  constexpr std::int64_t kBytes = 20 * kSharedBlock;
  return {{"first", DType::kU8, {kBytes}, first},
          {"made", DType::kU8, {kSharedBlock}},
          {"second", DType::kU8, {kBytes}, second}};
}

TEST_CASE("large copies have the same block offsets as in the source", "[formats]") {
  const TemporaryDirectory directory;
  for (const std::uint64_t begin : {8, 96, 4088, 12'288}) {
    CAPTURE(begin);
    const auto path = directory / std::to_string(begin);
    std::filesystem::create_directory(path);
    const auto tensors = copied_tensors({0, begin, begin + 20 * kSharedBlock}, {0, begin, begin});
    SafetensorsWriter(path, tensors, {});
    const std::string file = bytes_of_file(path / "model.safetensors");
    const std::uint64_t header =
        8 + static_cast<unsigned char>(file[0]) + 256 * static_cast<unsigned char>(file[1]);
    CHECK(header % kSharedBlock == begin % kSharedBlock);
    CHECK(header < 2 * kSharedBlock);
  }
}

TEST_CASE("free space is needed only for bytes not shared with the source", "[formats]") {
  const TemporaryDirectory directory;
  constexpr std::int64_t kPetabyte = 1LL << 50;
  OutputTensor copy{"copy", DType::kI8, {kPetabyte}, ByteRange{0, 8, 8 + kPetabyte}};
  const auto create = [&](const std::vector<OutputTensor>& tensors) {
    SafetensorsWriter(directory.path(), tensors, {}, 4 * kPetabyte);
  };
  CHECK_THAT(refusal_of([&] { create({copy}); }),
             is_environment_failure("bytes free, 1,125,899,906,842,624 needed"));
  copy.shareable = true;
  CHECK_NOTHROW(create({copy}));
  CHECK_THAT(refusal_of([&] { create({copy, {"new", DType::kI8, {kPetabyte}}}); }),
             is_environment_failure("bytes free, 1,125,899,906,850,816 needed"));
  // After three bytes of another tensor, its offset within blocks differs from the source's.
  const OutputTensor large{
      "large", DType::kI8, {kPetabyte + 3}, ByteRange{0, 0, kPetabyte + 3}, true};
  CHECK_THAT(refusal_of([&] { create({large, copy}); }),
             is_environment_failure("bytes free, 1,125,899,906,850,816 needed"));
}

TEST_CASE("a shard ends where copies continue in another source file", "[formats]") {
  const TemporaryDirectory directory;
  const auto tensors = copied_tensors({0, 8, 8}, {1, 8, 8});
  const auto files_of = [&](const char* name, std::uint64_t max_bytes) {
    std::filesystem::create_directory(directory / name);
    SafetensorsWriter(directory / name, tensors, {}, max_bytes);
    return tree_of(directory / name).size();
  };
  CHECK(files_of("whole", 100 * kSharedBlock) == 1);
  CHECK(files_of("split", 40 * kSharedBlock) == 3);  // two shards and an index
}

TEST_CASE("writer refuses too few and too many parts of a tensor", "[formats]") {
  const TemporaryDirectory directory;
  const std::vector<OutputTensor> one{{"w", DType::kU8, {5}}};
  SafetensorsWriter writer(directory.path(), one, {});
  const auto write = [&](const std::vector<std::string>& parts) {
    writer.write_parts("w", [&](const TensorSink& sink) {
      for (const std::string& part : parts) {
        sink(as_span(part));
      }
    });
  };
  CHECK_THAT(refusal_of([&] { write({"ab", "cd"}); }), is_wrong_usage("tensor w", "4 bytes"));
  CHECK_THAT(refusal_of([&] { write({"abc", "", "def"}); }), is_wrong_usage("tensor w", "6 bytes"));
  write({"ab", "", "cde"});
  writer.finish();
  CHECK(bytes_of(open_checkpoint(directory.path()), "w") == "abcde");
}

TEST_CASE("writer refuses tensors that were not announced", "[formats]") {
  const TemporaryDirectory directory;
  SafetensorsWriter writer(directory.path(), announced(kTensors), {});
  const auto writing = [&](const std::string& name, const std::string& bytes) {
    return refusal_of([&] { writer.write(name, as_span(bytes)); });
  };
  CHECK_THAT(writing("c", ""), is_wrong_usage("tensor c", "not announced"));
  CHECK_THAT(writing("a", "123"), is_wrong_usage("tensor a", "3 bytes", "10 announced"));
  writer.write("a", as_span(kTensors[1].bytes));
  CHECK_THAT(writing("a", kTensors[1].bytes), is_wrong_usage("tensor a", "twice"));
  writer.write("b", as_span(kTensors[0].bytes));
  writer.write("empty", {});
  CHECK_THAT(refusal_of([&] { writer.finish(); }),
             is_wrong_usage("tensor scalar", "never written"));
}

TEST_CASE("writer refuses duplicate tensor names and a directory in use", "[formats]") {
  const TemporaryDirectory directory;
  const std::vector<OutputTensor> twice{{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}};
  CHECK_THAT(refusal_of([&] { SafetensorsWriter(directory.path(), twice, {}); }),
             is_wrong_usage("tensor a", "twice"));
  CHECK_THAT(refusal_of([&] { SafetensorsWriter(directory.path(), announced(kTensors), {}); }),
             is_environment_failure("model.safetensors", "exists"));
}

}  // namespace
}  // namespace regroup

// Torch files written and read back. tests/interop checks that torch.load reads them.
#include <catch2/catch_test_macros.hpp>

#include "formats/base/checksum.h"
#include "formats/base/json.h"
#include "formats/model/model_directory.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/zip_archive.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

const std::vector<BuiltTensor> kTorchTensors{varied_tensor("b", DType::kF32, {2, 3}),
                                             varied_tensor("a", DType::kBF16, {5}),
                                             varied_tensor("empty", DType::kF16, {0, 4}),
                                             varied_tensor("scalar", DType::kF64, {}),
                                             {"bytes", DType::kU8, {3}, "abc"},
                                             {"eighths", DType::kF8E4M3, {2, 2}, "\x38\x40zz"},
                                             {"unsigned", DType::kU16, {2}, "\x01\x02\x03\x04"}};

void write_torch(const std::filesystem::path& directory,
                 std::uint64_t max_shard_bytes = kDefaultShardBytes) {
  TorchWriter writer(directory, announced(kTorchTensors), max_shard_bytes);
  for (auto tensor = kTorchTensors.rbegin(); tensor != kTorchTensors.rend(); ++tensor) {
    writer.write(tensor->name, as_span(tensor->bytes));  // in any order
  }
  writer.finish();
}

void check_all(const Checkpoint& checkpoint) {
  REQUIRE(checkpoint.tensors().size() == kTorchTensors.size());
  for (const BuiltTensor& tensor : kTorchTensors) {
    CAPTURE(tensor.name);
    CHECK((bytes_of(checkpoint, tensor.name) == tensor.bytes));
    CHECK(checkpoint.at(tensor.name).dtype == tensor.dtype);
    CHECK(checkpoint.at(tensor.name).shape == tensor.shape);
  }
}

TEST_CASE("crc32 gives the standard's check value in one piece or in two", "[formats]") {
  const std::string digits = "123456789";
  CHECK(crc32_of(as_span(digits)) == 0xcbf43926);
  CHECK(crc32_of(as_span("")) == 0);
  const std::string text = "some text that is longer than a few times eight bytes";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(crc32_of(as_span(text.substr(cut)), crc32_of(as_span(text.substr(0, cut)))) ==
          crc32_of(as_span(text)));
  }
}

TEST_CASE("a written torch file reads back", "[formats]") {
  const TemporaryDirectory directory;
  write_torch(directory.path());
  CHECK((tree_of(directory.path()).size() == 1));
  check_all(open_checkpoint(directory.path()));
}

TEST_CASE("a torch file has torch's entries with alignment and CRCs", "[formats]") {
  const TemporaryDirectory directory;
  write_torch(directory.path());
  const File file = File::open(directory / "pytorch_model.bin");
  std::vector<std::string> names;
  for (const ZipEntry& entry : read_zip_directory(file)) {
    names.push_back(entry.name);
    CHECK(entry.data_at % 64 == 0);
    CHECK(read_zip_entry(file, entry, 1U << 20).size() == entry.size);  // checks its CRC
    if (entry.name == "pytorch_model/version") {
      CHECK(read_zip_entry(file, entry, 8) == "3\n");
    }
  }
  CHECK(names == std::vector<std::string>{
                     "pytorch_model/data.pkl", "pytorch_model/.format_version",
                     "pytorch_model/.storage_alignment", "pytorch_model/byteorder",
                     "pytorch_model/data/0", "pytorch_model/data/1", "pytorch_model/data/2",
                     "pytorch_model/data/3", "pytorch_model/data/4", "pytorch_model/data/5",
                     "pytorch_model/data/6", "pytorch_model/version"});
}

TEST_CASE("torch files are split into shards with an index", "[formats]") {
  const TemporaryDirectory directory;
  write_torch(directory.path(), 24);
  const auto tree = tree_of(directory.path());
  REQUIRE(tree.size() == 4);
  const Json index = Json::parse(tree.at("pytorch_model.bin.index.json"));
  CHECK(index["metadata"]["total_size"] == 24 + 10 + 0 + 8 + 3 + 4 + 4);
  CHECK(index["weight_map"]["b"] == "pytorch_model-00001-of-00003.bin");
  CHECK(index["weight_map"]["scalar"] == "pytorch_model-00002-of-00003.bin");
  CHECK(index["weight_map"]["unsigned"] == "pytorch_model-00003-of-00003.bin");
  check_all(open_checkpoint(directory.path()));
}

TEST_CASE("tensors are copied from any container and strided ones in row-major order",
          "[formats]") {
  const TemporaryDirectory directory;
  const std::string six =
      tensor_of("", DType::kF32, {6}, std::vector<double>{0, 1, 2, 3, 4, 5}).bytes;
  const std::string storage = pickle::storage("FloatStorage", "0", 6);
  put_file(
      directory / "in.pt",
      torch_archive(pickle::program(pickle::dict(
                        {pickle::text("plain"), pickle::tensor({storage, 2, {2, 2}, {2, 1}}),
                         pickle::text("turned"), pickle::tensor({storage, 0, {3, 2}, {1, 3}})})),
                    {six})
          .bytes());
  const Checkpoint source = open_checkpoint(directory / "in.pt");
  TorchWriter writer(directory.path(), std::vector<OutputTensor>{{"plain", DType::kF32, {2, 2}},
                                                                 {"turned", DType::kF32, {3, 2}}});
  writer.copy("plain", source, source.at("plain"));
  writer.copy("turned", source, source.at("turned"));
  writer.finish();
  const Checkpoint written = open_checkpoint(directory / "pytorch_model.bin");
  CHECK(values_of(written, "plain") == std::vector<double>{2, 3, 4, 5});
  CHECK(values_of(written, "turned") == std::vector<double>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("entries beyond 4 GiB have ZIP64 fields", "[formats]") {
  const TemporaryDirectory directory;
  ZipLayout layout;
  const std::uint64_t five_gib = 5ULL << 30;
  layout.add("m/large", five_gib);
  layout.add("m/behind", 5);
  layout.set_crc32(1, crc32_of(as_span("hello")));
  File file = File::create(directory / "sparse.zip");
  for (std::size_t i = 0; i < layout.entry_count(); ++i) {
    const ZipEntry& entry = layout.entry(i);
    CHECK(entry.data_at % 64 == 0);
    CHECK(layout.header(i).size() == entry.data_at - entry.header_at);
    file.write_at(entry.header_at, as_span(layout.header(i)));
    file.write_at(entry.data_at + entry.size, as_span(layout.trailer(i)));
  }
  CHECK(layout.trailer(0).size() == 24);
  file.write_at(layout.entry(1).data_at, as_span("hello"));
  file.write_at(layout.directory_at(), as_span(layout.directory()));
  file.sync_and_close();
  const File archive = File::open(directory / "sparse.zip");
  const std::vector<ZipEntry> entries = read_zip_directory(archive);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].size == five_gib);
  CHECK(entries[1].data_at > five_gib);
  CHECK(read_zip_entry(archive, entries[1], 5) == "hello");
}

TEST_CASE("the torch writer refuses dtypes that torch lacks and names the tensor", "[formats]") {
  const TemporaryDirectory directory;
  const auto refused = [&](DType dtype) {
    return refusal_of(
        [&] { TorchWriter(directory.path(), std::vector<OutputTensor>{{"w", dtype, {4}}}); });
  };
  CHECK_THAT(refused(DType::kF4), is_wrong_usage("tensor w", "F4"));
  CHECK_THAT(refused(DType::kF6E2M3), is_wrong_usage("tensor w", "F6_E2M3"));
  CHECK(tree_of(directory.path()).empty());
}

TEST_CASE("a tensor written in parts has the checksum of the whole", "[formats]") {
  const TemporaryDirectory directory;
  const std::vector<OutputTensor> one{{"w", DType::kU8, {5}}};
  const auto write = [&](const std::string& name, const std::vector<std::string>& parts) {
    std::filesystem::create_directory(directory / name);
    TorchWriter writer(directory / name, one);
    writer.write_parts("w", [&](const TensorSink& sink) {
      for (const std::string& part : parts) {
        sink(as_span(part));
      }
    });
    writer.finish();
  };
  write("whole", {"abcde"});
  write("parts", {"ab", "cde"});
  CHECK(tree_of(directory / "parts") == tree_of(directory / "whole"));
}

TEST_CASE("the torch writer refuses unannounced and missized and missing tensors", "[formats]") {
  const TemporaryDirectory directory;
  TorchWriter writer(directory.path(), std::vector<OutputTensor>{{"w", DType::kU8, {2}}});
  CHECK_THAT(refusal_of([&] { writer.write("v", as_span("ab")); }), is_wrong_usage("tensor v"));
  CHECK_THAT(refusal_of([&] { writer.write("w", as_span("abc")); }), is_wrong_usage("tensor w"));
  CHECK_THAT(refusal_of([&] { writer.finish(); }), is_wrong_usage("tensor w", "never written"));
}

}  // namespace
}  // namespace regroup

// Files from the writer, read back and compared with files from other writers.
#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/gguf.h"
#include "formats/tensors/safetensors.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

std::vector<OutputTensor> announced(std::span<const TensorInfo> tensors) {
  std::vector<OutputTensor> outputs;
  for (const TensorInfo& tensor : tensors) {
    outputs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return outputs;
}

TEST_CASE("a file copied tensor by tensor is byte-identical", "[formats]") {
  for (const char* name : {"llama", "gpt2", "bloom", "gptneox"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const auto source = golden("gguf/" + std::string(name) + ".gguf");
    const GgufMetadata metadata = open_gguf(source).metadata;
    const Checkpoint checkpoint = open_checkpoint(source);
    GgufWriter writer(directory / "copy.gguf", metadata, announced(checkpoint.tensors()));
    for (const TensorInfo& tensor : checkpoint.tensors()) {
      writer.copy(tensor.name, checkpoint, tensor);
    }
    writer.finish();
    CHECK((bytes_of_file(directory / "copy.gguf") == bytes_of_file(source)));
  }
}

TEST_CASE("the writer uses the alignment of the metadata", "[formats]") {
  const TemporaryDirectory directory;
  GgufMetadata metadata;
  metadata.set_u32("general.alignment", 128);
  metadata.set_string("regroup.kv_heads", "2");
  const std::vector<BuiltTensor> tensors{varied_tensor("a", DType::kF32, {2, 3}),
                                         varied_tensor("b", DType::kF16, {5})};
  GgufWriter writer(directory / "m.gguf", metadata,
                    std::vector<OutputTensor>{{"a", DType::kF32, {2, 3}}, {"b", DType::kF16, {5}}});
  for (const BuiltTensor& tensor : tensors) {
    writer.write(tensor.name, std::as_bytes(std::span(tensor.bytes)));
  }
  writer.finish();
  const Checkpoint checkpoint = open_checkpoint(directory / "m.gguf");
  CHECK(checkpoint.at("a").begin == 256);
  CHECK(checkpoint.at("b").begin == 384);
  CHECK(std::filesystem::file_size(directory / "m.gguf") == 512);
  CHECK(checkpoint.at("a").shape == Shape{2, 3});
  CHECK((bytes_of(checkpoint, "a") == tensors[0].bytes));
  CHECK((bytes_of(checkpoint, "b") == tensors[1].bytes));
  CHECK(checkpoint.metadata().at("regroup.kv_heads") == "2");
}

TEST_CASE("the writer refuses tensors that no reader accepts", "[formats]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const OutputTensor& tensor) {
    return refusal_of(
        [&] { GgufWriter(directory / "m.gguf", GgufMetadata(), std::span(&tensor, 1)); });
  };
  CHECK_THAT(refusal({"w", DType::kF8E4M3, {4}}), is_wrong_usage("tensor w", "F8_E4M3"));
  CHECK_THAT(refusal({"w", DType::kF32, {1, 1, 1, 1, 1}}), is_wrong_usage("tensor w"));
  CHECK_THAT(refusal({std::string(64, 'w'), DType::kF32, {1}}), is_wrong_usage("63 bytes"));
  CHECK_THAT(refusal({"w", DType::kQ8_0, {32, 8}}), is_bad_input("rows of 8"));
  CHECK(tree_of(directory.path()).empty());
}

TEST_CASE("the safetensors writer refuses quantised blocks", "[formats]") {
  const TensorInfo tensor{"w", DType::kQ8_0, {32}, 0, 0, 34, {}};
  CHECK_THAT(refusal_of([&] { encode_safetensors_header(std::span(&tensor, 1), {}); }),
             is_wrong_usage("tensor w", "Q8_0"));
}

}  // namespace
}  // namespace regroup

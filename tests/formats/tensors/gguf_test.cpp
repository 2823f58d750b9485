// GGUF files from llama.cpp's writer, and every fault that a header can have.
#include "formats/tensors/gguf.h"

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "formats/tensors/tensor_reader.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/gguf_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

constexpr std::uint32_t kU32 = 4, kBool = 7, kString = 8, kArray = 9;
constexpr std::uint32_t kF32Tensor = 0, kQ8Tensor = 8;

GgufFile opened_gguf(const std::string& text) {
  const TemporaryDirectory directory;
  put_file(directory / "m.gguf", text);
  return open_gguf(directory / "m.gguf");
}

Error refusal_of_gguf(const std::string& text) {
  return refusal_of([&] { opened_gguf(text); });
}

Error refusal_of_gguf_entry(const std::string& entry) {
  return refusal_of_gguf(GgufPieces{.entries = {entry}}.text());
}

Error refusal_of_tensor(const std::string& tensor, std::size_t data_bytes = 64) {
  return refusal_of_gguf(GgufPieces{.tensors = {tensor}, .data_bytes = data_bytes}.text());
}

TEST_CASE("a file from llama.cpp's writer is read", "[formats]") {
  const GgufFile file = open_gguf(golden("gguf/llama.gguf"));
  CHECK(file.metadata.text("general.architecture") == "llama");
  CHECK(file.metadata.count("llama.block_count") == 2);
  CHECK(file.metadata.number("llama.attention.layer_norm_rms_epsilon") == 1e-5);
  const auto tokens = file.metadata.array("tokenizer.ggml.tokens")->strings();
  REQUIRE(tokens->size() == 16);
  CHECK(tokens->at(15) == "token 15");
  CHECK(file.metadata.array("tokenizer.ggml.token_type")->integers()->at(0) == 1);
  REQUIRE(file.part.tensors.size() == 20);
  CHECK(file.part.tensors[0].name == "token_embd.weight");
  CHECK(file.part.tensors[0].shape == Shape{16, 32});
  CHECK(file.part.tensors[0].dtype == DType::kF16);
}

TEST_CASE("quantised tensors of a file from llama.cpp's writer have the right values",
          "[formats]") {
  const Checkpoint model = open_checkpoint(golden("gguf/llama.gguf"));
  const Checkpoint expected = open_checkpoint(golden("gguf/llama.expected.safetensors"));
  REQUIRE(expected.tensors().size() == 2);
  for (const TensorInfo& numbers : expected.tensors()) {
    CAPTURE(numbers.name);
    const TensorInfo& tensor = model.at(numbers.name);
    CHECK(tensor.shape == numbers.shape);
    std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
    const std::string blocks = bytes_of(model, numbers.name);
    decode_numbers(tensor.dtype, std::as_bytes(std::span(blocks)), values);
    CHECK(values == values_of(expected, numbers.name));
  }
}

TEST_CASE("files without tensors and files with empty tensors are read", "[formats]") {
  CHECK(opened_gguf(GgufPieces().text()).part.tensors.empty());
  CHECK(opened_gguf(GgufPieces{.version = 2}.text()).metadata.entries().empty());
  const GgufFile file = opened_gguf(GgufPieces{
      .tensors = {gguf_tensor("s", {}, kF32Tensor, 0), gguf_tensor("none", {4, 0}, kF32Tensor, 32)},
      .data_bytes = 32}
                                        .text());
  CHECK(file.part.tensors[0].bytes() == 4);
  CHECK(file.part.tensors[1].bytes() == 0);
  CHECK(file.part.tensors[1].shape == Shape{0, 4});
}

TEST_CASE("tensors follow the file's alignment and the last needs no padding", "[formats]") {
  const GgufFile file = opened_gguf(GgufPieces{
      .entries = {gguf_entry("general.alignment", kU32, gguf_u32(64))},
      .tensors = {gguf_tensor("a", {3}, kF32Tensor, 0), gguf_tensor("b", {32, 2}, kQ8Tensor, 64)},
      .data_bytes = 64 + 68,
      .alignment = 64}
                                        .text());
  CHECK(file.part.tensors[0].begin % 64 == 0);
  CHECK(file.part.tensors[1].begin == file.part.tensors[0].begin + 64);
  CHECK(file.part.tensors[1].bytes() == 68);
  CHECK(file.part.tensors[1].shape == Shape{2, 32});
}

TEST_CASE("a container's metadata are the regroup strings", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "m.gguf",
           GgufPieces{.entries = {gguf_entry("regroup.kv_heads", kString, gguf_string("2")),
                                  gguf_entry("general.name", kString, gguf_string("x")),
                                  gguf_entry("regroup.count", kU32, gguf_u32(1))}}
               .text());
  const auto metadata = open_weight_file(directory / "m.gguf").metadata;
  CHECK(metadata == std::map<std::string, std::string>{{"regroup.kv_heads", "2"}});
}

TEST_CASE("GGUF reader refuses other versions and byte orders", "[formats]") {
  CHECK_THAT(refusal_of_gguf(GgufPieces{.magic = "GGML"}.text()), is_bad_input("GGML", "GGUF"));
  CHECK_THAT(refusal_of_gguf("GGU"), is_bad_input("m.gguf", "magic", "truncated"));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.version = 1}.text()), is_bad_input("version 1"));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.version = 0}.text()), is_bad_input("version 0"));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.version = 4}.text()), is_bad_input("version 4"));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.version = 3U << 24}.text()), is_bad_input("big-endian"));
}

TEST_CASE("GGUF reader refuses counts beyond the file without allocating", "[formats]") {
  CHECK_THAT(refusal_of_gguf(GgufPieces{.more_tensors = 1}.text()),
             is_bad_input("number of tensors"));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.more_tensors = std::uint64_t{1} << 63}.text()),
             is_bad_input("number of tensors", "9223372036854775808"));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.more_entries = ~std::uint64_t{0}}.text()),
             is_bad_input("number of keys"));
}

TEST_CASE("GGUF reader refuses more tensors or keys than the limits without reading them",
          "[formats]") {
  const std::string room(2'000'000, '\0');  // enough for the claimed numbers
  CHECK_THAT(refusal_of_gguf(GgufPieces{.more_tensors = 30'001}.text() + room),
             is_bad_input("number of tensors is 30001", "at most 30000"));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.more_entries = 10'001}.text() + room),
             is_bad_input("number of keys is 10001", "at most 10000"));
}

TEST_CASE("GGUF reader refuses a header over the limit without reading it", "[formats]") {
  const TemporaryDirectory directory;
  const auto path = directory / "m.gguf";
  const std::uint64_t length = kMaxGgufHeader;
  put_file(path, GgufPieces{.entries = {gguf_entry("k", kString, gguf_u64(length))}}.text());
  std::filesystem::resize_file(path, 2 * kMaxGgufHeader);  // sparse
  CHECK_THAT(refusal_of([&] { open_gguf(path); }),
             is_bad_input("m.gguf", "key k", "beyond the first 67108864 bytes"));
}

TEST_CASE("padding that would overflow is refused", "[formats]") {
  CHECK(padded_to(33, 32) == 64);
  CHECK(padded_to(64, 32) == 64);
  CHECK(padded_to(~std::uint64_t{31}, 32) == ~std::uint64_t{31});
  CHECK_FALSE(padded_to(~std::uint64_t{30}, 32));
}

TEST_CASE("GGUF reader refuses a header truncated at any byte", "[formats]") {
  const std::string whole = bytes_of_file(golden("gguf/llama.gguf"));
  const std::uint64_t header = open_gguf(golden("gguf/llama.gguf")).part.tensors.front().begin;
  for (std::size_t length = 0; length < header; length += 7) {
    CAPTURE(length);
    CHECK_THAT(refusal_of_gguf(whole.substr(0, length)), is_bad_input("m.gguf"));
  }
}

TEST_CASE("GGUF reader refuses bad keys and values", "[formats]") {
  const std::string once = gguf_entry("k", kU32, gguf_u32(1));
  CHECK_THAT(refusal_of_gguf(GgufPieces{.entries = {once, once}}.text()),
             is_bad_input("key k", "twice"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_entry("", kU32, gguf_u32(1))),
             is_bad_input("key 0", "empty"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_entry("k", 13, gguf_u64(1))),
             is_bad_input("key k", "type 13"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_entry("k", kBool, "\x02")), is_bad_input("key k", "bool"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_entry("k", kString, gguf_u64(1ULL << 40))),
             is_bad_input("key k", "1099511627776"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_u64(~std::uint64_t{0}) + std::string(30, 'k')),
             is_bad_input("key 0", "18446744073709551615"));
}

TEST_CASE("GGUF reader refuses bad arrays", "[formats]") {
  CHECK_THAT(refusal_of_gguf_entry(gguf_array_entry("k", kArray, 1, std::string(64, '\0'))),
             is_bad_input("key k", "array of arrays"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_array_entry("k", 77, 1, "")),
             is_bad_input("key k", "type 77"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_array_entry("k", kU32, 1ULL << 62, "abcd")),
             is_bad_input("key k", "4611686018427387904", "u32"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_array_entry("k", kString, 1ULL << 61, "abcd")),
             is_bad_input("key k", "string"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_array_entry("k", kString, 1, gguf_u64(1000))),
             is_bad_input("key k", "1000"));
  CHECK_THAT(refusal_of_gguf_entry(gguf_array_entry("k", kBool, 2, std::string("\0\xff", 2))),
             is_bad_input("key k", "bool"));
}

TEST_CASE("GGUF reader refuses bad alignments", "[formats]") {
  for (const std::uint32_t alignment : {0U, 3U, 48U}) {
    CHECK_THAT(refusal_of_gguf_entry(gguf_entry("general.alignment", kU32, gguf_u32(alignment))),
               is_bad_input("general.alignment", std::to_string(alignment), "power of two"));
  }
  CHECK_THAT(refusal_of_gguf_entry(gguf_entry("general.alignment", 10, gguf_u64(32))),
             is_bad_input("general.alignment", "u64"));
}

TEST_CASE("GGUF reader refuses bad tensor descriptions", "[formats]") {
  CHECK_THAT(refusal_of_tensor(gguf_tensor(std::string(64, 'n'), {4}, kF32Tensor, 0)),
             is_bad_input("64 bytes", "63"));
  CHECK_THAT(refusal_of_tensor(gguf_tensor("w", {1, 1, 1, 1, 1}, kF32Tensor, 0)),
             is_bad_input("tensor w", "5 dimensions"));
  CHECK_THAT(refusal_of_tensor(gguf_tensor("w", {~std::uint64_t{0}}, kF32Tensor, 0)),
             is_bad_input("tensor w", "[-1]"));
  CHECK_THAT(refusal_of_tensor(gguf_tensor("w", {1ULL << 33, 1ULL << 33}, kF32Tensor, 0)),
             is_bad_input("tensor w", "too many elements"));
  CHECK_THAT(refusal_of_tensor(gguf_tensor("w", {1ULL << 62}, kF32Tensor, 0)),
             is_bad_input("tensor w", "too many bytes"));
  CHECK_THAT(refusal_of_tensor(gguf_tensor("w", {4, 32}, kQ8Tensor, 0)),
             is_bad_input("tensor w", "rows of 4", "Q8_0"));
  for (const std::uint32_t type : {4U, 9U, 31U, 43U, ~0U}) {
    CHECK_THAT(refusal_of_tensor(gguf_tensor("w", {4}, type, 0)),
               is_bad_input("tensor w", "ggml type", std::to_string(type)));
  }
}

TEST_CASE("GGUF reader refuses tensors whose offsets are not consecutive", "[formats]") {
  const auto file_with_second_at = [](std::uint64_t offset) {
    return GgufPieces{.tensors = {gguf_tensor("a", {9}, kF32Tensor, 0),
                                  gguf_tensor("b", {4}, kF32Tensor, offset)},
                      .data_bytes = 128}
        .text();
  };
  CHECK(opened_gguf(file_with_second_at(64)).part.tensors.size() == 2);
  for (const std::uint64_t offset : {0ULL, 36ULL, 32ULL, 96ULL, ~0ULL - 31}) {
    CHECK_THAT(refusal_of_gguf(file_with_second_at(offset)),
               is_bad_input("tensor b", std::to_string(offset), "64 expected"));
  }
  CHECK_THAT(refusal_of_tensor(gguf_tensor("w", {17}, kF32Tensor, 0), 64),
             is_bad_input("tensor w", "68 bytes", "64", "truncated"));
  const std::string twice = gguf_tensor("w", {4}, kF32Tensor, 0);
  CHECK_THAT(refusal_of_gguf(GgufPieces{.tensors = {twice, twice}, .data_bytes = 64}.text()),
             is_bad_input("tensor w", "twice"));
}

TEST_CASE("control bytes in names of a GGUF file are escaped", "[formats]") {
  CHECK_THAT(refusal_of_gguf_entry(gguf_entry("k\x1b[2J", 99, "")), is_bad_input("\\x1b"));
}

}  // namespace
}  // namespace regroup

// The file around the header: its length, the bytes around the JSON, the ranges of the data.
#include "formats/tensors/safetensors.h"

#include <array>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

constexpr std::string_view kSafetensorsFile = "weights.safetensors";

Checkpoint::Part opened(std::string_view bytes) {
  const TemporaryDirectory directory;
  put_file(directory / kSafetensorsFile, bytes);
  return open_safetensors(directory / kSafetensorsFile);
}

Error refusal_of_file(std::string_view bytes) {
  return refusal_of([&] { opened(bytes); });
}

// Two F32 tensors of 2 elements, the second at the given range.
std::string file_with_second_tensor_at(int begin, int end, std::size_t data_bytes) {
  return file_with_header(
      fmt::format(R"({{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},)"
                  R"("b":{{"dtype":"F32","shape":[2],"data_offsets":[{},{}]}}}})",
                  begin, end),
      data_bytes);
}

TEST_CASE("reader accepts ranges that cover the data in any order of names", "[formats]") {
  const Checkpoint::Part part =
      opened(file_with_header(R"({"b":{"dtype":"I8","shape":[3],"data_offsets":[4,7]},)"
                              R"("a":{"data_offsets":[0,4],"shape":[2,1],"dtype":"BF16"},)"
                              R"("__metadata__":{"format":"pt","x":"y"}}   )",
                              7));
  REQUIRE(part.tensors.size() == 2);
  CHECK(part.tensors[0].name == "a");
  CHECK(part.tensors[0].dtype == DType::kBF16);
  CHECK(part.tensors[0].shape == Shape{2, 1});
  CHECK(part.tensors[1].name == "b");
  CHECK(part.tensors[1].end - part.tensors[0].begin == 7);
  CHECK(part.tensors[1].end == part.file.size());
  CHECK(part.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"x", "y"}});
}

TEST_CASE("reader accepts scalars and empty tensors and empty checkpoints", "[formats]") {
  const Checkpoint::Part part =
      opened(file_with_header(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                              R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
                              R"("f":{"dtype":"F32","shape":[7,0],"data_offsets":[8,8]}})",
                              8));
  CHECK(part.tensors.size() == 3);
  CHECK(opened(file_with_header("{}")).tensors.empty());
}

TEST_CASE("reader knows every dtype of the format and its size", "[formats]") {
  const std::array<std::pair<std::string_view, int>, 22> dtypes{{
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64},
  }};
  for (const auto& [dtype, bits] : dtypes) {
    CAPTURE(dtype);
    const auto part = opened(file_with_header(
        fmt::format(R"({{"t":{{"dtype":"{}","shape":[4],"data_offsets":[0,{}]}}}})", dtype,
                    4 * bits / 8),
        static_cast<std::size_t>(4 * bits / 8)));
    CHECK(name_of(part.tensors.front().dtype) == dtype);
  }
}

TEST_CASE("reader rejects files too short for a header length", "[formats]") {
  CHECK_THAT(refusal_of_file(""), is_bad_input(kSafetensorsFile, "0 bytes", "too short"));
  CHECK_THAT(refusal_of_file("1234567"), is_bad_input(kSafetensorsFile, "7 bytes", "too short"));
}

TEST_CASE("reader rejects an empty header", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_length(0, "")), is_bad_input(kSafetensorsFile, "'{'"));
}

TEST_CASE("reader rejects a header longer than the file", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_length(3, "{}")),
             is_bad_input(kSafetensorsFile, "header of 3 bytes", "file of 10"));
}

TEST_CASE("reader rejects a header over the limit without allocating it", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_length(kMaxSafetensorsHeader + 1, "{}")),
             is_bad_input(kSafetensorsFile, "25000001 bytes", "at most 25000000"));
  CHECK_THAT(refusal_of_file(file_with_length(std::numeric_limits<std::uint64_t>::max(), "{}")),
             is_bad_input(kSafetensorsFile, "18446744073709551615 bytes", "at most 25000000"));
}

TEST_CASE("reader rejects more than 100000 tensors before it reads any", "[formats]") {
  std::string header = "{";
  for (int i = 0; i <= 100'001; ++i) {
    fmt::format_to(std::back_inserter(header),
                   R"("{}":{{"dtype":"no such","shape":[],"data_offsets":[0,0]}},)", i);
  }
  header.back() = '}';
  CHECK_THAT(refusal_of_file(file_with_header(header)),
             is_bad_input(kSafetensorsFile, "more than 100000 tensors"));
}

TEST_CASE("braces in strings are not counted as tensors", "[formats]") {
  std::string braces;
  while (braces.size() < 20'000'000) {
    braces += R"({{{{\"{\\)";
  }
  const auto part = opened(file_with_header(R"({"__metadata__":{"a":")" + braces + R"("}})"));
  CHECK(part.metadata.at("a").size() == braces.size() / 9 * 7);
}

TEST_CASE("reader rejects a header that does not begin with a brace", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_header(" {}")), is_bad_input(kSafetensorsFile, "'{'"));
  CHECK_THAT(refusal_of_file(file_with_header("\xef\xbb\xbf{}")),
             is_bad_input(kSafetensorsFile, "'{'"));
  CHECK_THAT(refusal_of_file(file_with_header("[]")), is_bad_input(kSafetensorsFile, "'{'"));
  CHECK_THAT(refusal_of_file(file_with_header("3")), is_bad_input(kSafetensorsFile, "'{'"));
}

TEST_CASE("reader rejects anything but spaces after the JSON", "[formats]") {
  CHECK(opened(file_with_header("{}      ")).tensors.empty());
  using std::string_literals::operator""s;
  for (const std::string& rest : {"\n"s, "\t"s, "\0"s, "\0 {}"s, "{}"s, "x"s, " \0 "s, "\0}"s}) {
    CAPTURE(rest);
    CHECK_THAT(refusal_of_file(file_with_header("{}" + rest)),
               is_bad_input(kSafetensorsFile, "header"));
  }
}

TEST_CASE("reader rejects a tensor that ends past the file", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_second_tensor_at(8, 16, 15)),
             is_bad_input(kSafetensorsFile, "tensor b", "byte 16", "15"));
}

TEST_CASE("reader rejects overlapping ranges", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_second_tensor_at(4, 12, 12)),
             is_bad_input(kSafetensorsFile, "tensor b", "byte 4", "8 expected", "overlap"));
  CHECK_THAT(refusal_of_file(file_with_second_tensor_at(0, 8, 8)),
             is_bad_input(kSafetensorsFile, "tensor b", "byte 0", "8 expected", "overlap"));
}

TEST_CASE("reader rejects a hole between tensors or before the first", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_second_tensor_at(12, 20, 20)),
             is_bad_input(kSafetensorsFile, "tensor b", "byte 12", "8 expected", "hole"));
  CHECK_THAT(refusal_of_file(
                 file_with_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2)),
             is_bad_input(kSafetensorsFile, "tensor a", "byte 1", "0 expected", "hole"));
}

TEST_CASE("reader rejects bytes after the last tensor", "[formats]") {
  CHECK_THAT(refusal_of_file(file_with_second_tensor_at(8, 16, 19)),
             is_bad_input(kSafetensorsFile, "3 bytes after the last tensor"));
  CHECK_THAT(refusal_of_file(file_with_header("{}", 1)),
             is_bad_input(kSafetensorsFile, "1 bytes after the last tensor"));
}

TEST_CASE("reader says what kind of file a wrong file is", "[formats]") {
  CHECK_THAT(refusal_of_file("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
             is_bad_input(kSafetensorsFile, "git-LFS", "git lfs pull"));
  CHECK_THAT(refusal_of_file("<!DOCTYPE html><html></html>"),
             is_bad_input(kSafetensorsFile, "HTML"));
  CHECK_THAT(refusal_of_file("<!doctype html>\n<title>404</title>"),
             is_bad_input(kSafetensorsFile, "HTML"));
  CHECK_THAT(refusal_of_file("<HTML><BODY>Not found"), is_bad_input(kSafetensorsFile, "HTML"));
  CHECK_THAT(refusal_of_file("<html><body>Not found"), is_bad_input(kSafetensorsFile, "HTML"));
  for (const std::int32_t magic : {20240326, 20240803}) {
    CHECK_THAT(refusal_of_file(bytes_of_numbers(std::vector{magic, 3, 1024, 50257})),
               is_bad_input("llm.c", "export_hf.py"));
  }
  CHECK_THAT(refusal_of_file("GGUF\x03 followed by counts"),
             is_bad_input(kSafetensorsFile, "GGUF"));
  CHECK_THAT(refusal_of_file("PK\x03\x04\x14 and so on"), is_bad_input(kSafetensorsFile, "ZIP"));
  CHECK_THAT(refusal_of_file("\x93NUMPY\x01 and so on"), is_bad_input(kSafetensorsFile, "numpy"));
  CHECK_THAT(refusal_of_file("All human beings are born free"),
             is_bad_input(kSafetensorsFile, "nor a weight file (text)"));
}

TEST_CASE("reader recognises gzip data with and without a date", "[formats]") {
  CHECK_THAT(refusal_of_file("\x1f\x8b\x08 with a date, so a huge length"),
             is_bad_input(kSafetensorsFile, "gzip"));
  // Without a date the first 8 bytes read as a header of 559,903 bytes, which this file could hold.
  using std::string_literals::operator""s;
  CHECK_THAT(refusal_of_file("\x1f\x8b\x08\0\0\0\0\0"s + std::string(600'000, 'z')),
             is_bad_input(kSafetensorsFile, "gzip"));
}

TEST_CASE("reader rejects directories and FIFOs and devices", "[formats]") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal_of([&] { open_safetensors(directory.path()); }),
             is_bad_input(directory.path().string(), "a directory"));
  CHECK_THAT(refusal_of([] { open_safetensors("/dev/null"); }),
             is_bad_input("/dev/null", "not a regular file"));
}

TEST_CASE("the writer's header reads back unchanged", "[formats]") {
  const std::vector<TensorInfo> tensors{
      {"name with \"quotes\", \\ and \u00fc", DType::kBF16, {2, 3}, 0, 0, 12},
      {"scalar", DType::kF64, {}, 0, 12, 20},
      {"empty", DType::kU8, {0}, 0, 20, 20}};
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"note", "line\nbreak"}};
  const std::string header = encode_safetensors_header(tensors, metadata);
  CHECK(header.size() % 8 == 0);
  const Checkpoint::Part part = opened(header + std::string(20, '\0'));
  CHECK(part.metadata == metadata);
  REQUIRE(part.tensors.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(part.tensors[i].name == tensors[i].name);
    CHECK(part.tensors[i].dtype == tensors[i].dtype);
    CHECK(part.tensors[i].shape == tensors[i].shape);
    CHECK(part.tensors[i].begin == tensors[i].begin + header.size());
    CHECK(part.tensors[i].end == tensors[i].end + header.size());
  }
}

}  // namespace
}  // namespace regroup

// Faults inside a safetensors header, one by one.
#include <cstring>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/tensors/safetensors.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

constexpr std::string_view kHeaderFile = "weights.safetensors";

std::vector<TensorInfo> tensors_in(std::string_view header, std::uint64_t data_bytes) {
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  parse_safetensors_header(header, data_bytes, kHeaderFile, tensors, metadata);
  return tensors;
}

Error refusal_of_header(std::string_view header, std::uint64_t data_bytes = 4) {
  return refusal_of([&] { tensors_in(header, data_bytes); });
}

// A header of one tensor "w" with the given entry. Each fault changes one thing in `kGood`.
constexpr std::string_view kGood = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

std::string header_with_entry(std::string_view fields) {
  return fmt::format(R"({{"w":{{{}}}}})", fields);
}

Error refusal_of_entry(std::string_view fields) {
  return refusal_of_header(header_with_entry(fields));
}

TEST_CASE("header parser accepts the entry that the other tests change", "[formats]") {
  CHECK(tensors_in(header_with_entry(kGood), 4).size() == 1);
}

TEST_CASE("header parser reports where a value has the wrong type", "[formats]") {
  CHECK_THAT(refusal_of_header("[]"),
             is_bad_input(kHeaderFile, "the header holds an array, one JSON object is needed"));
  CHECK_THAT(refusal_of_header(R"({"w":3})"),
             is_bad_input(kHeaderFile, "entry w holds the number 3, an object is needed"));
  CHECK_THAT(refusal_of_header(R"({"__metadata__":{"k":{}}})"),
             is_bad_input(kHeaderFile, "__metadata__ key k holds an object, a string is needed"));
  CHECK_THAT(refusal_of_entry(R"("dtype":["F32"])"),
             is_bad_input(kHeaderFile, "tensor w: dtype holds an array, a string is needed"));
  CHECK_THAT(
      refusal_of_entry(R"("shape":"1")"),
      is_bad_input(kHeaderFile, "tensor w: shape holds the string \"1\", an array is needed"));
  CHECK_THAT(
      refusal_of_entry(R"("data_offsets":{})"),
      is_bad_input(kHeaderFile, "tensor w: data_offsets holds an object, an array is needed"));
}

TEST_CASE("header parser rejects invalid UTF-8", "[formats]") {
  CHECK_THAT(refusal_of_header(fmt::format("{{\"w\xff\":{{{}}}}}", kGood)),
             is_bad_input(kHeaderFile, "not valid JSON", "byte"));
  CHECK_THAT(refusal_of_header(fmt::format("{{\"\xc0\xaf\":{{{}}}}}", kGood)),
             is_bad_input(kHeaderFile, "not valid JSON"));
  CHECK_THAT(refusal_of_header(fmt::format("{{\"\\ud800\":{{{}}}}}", kGood)),
             is_bad_input(kHeaderFile, "not valid JSON"));
}

TEST_CASE("header parser rejects invalid JSON", "[formats]") {
  for (const std::string_view text :
       {"{", "{\"w\"", "{\"w\":}", "{\"w\":{},}", "{'w':{}}", "{\"w\":{}} {\"v\":{}}", "{}}",
        "{/**/}", "{\"w\":nul}", "{\"w\" {}}"}) {
    CAPTURE(text);
    CHECK_THAT(refusal_of_header(text), is_bad_input(kHeaderFile));
  }
}

TEST_CASE("header parser rejects entries that are not objects", "[formats]") {
  for (const std::string_view value : {"3", "-3", "1.5", "null", "true", "\"F32\"", "[]"}) {
    CAPTURE(value);
    CHECK_THAT(refusal_of_header(fmt::format(R"({{"w":{}}})", value)),
               is_bad_input(kHeaderFile, "entry w", "object"));
  }
}

TEST_CASE("header parser rejects a tensor named twice", "[formats]") {
  CHECK_THAT(refusal_of_header(fmt::format(R"({{"w":{{{0}}},"w":{{{0}}}}})", kGood)),
             is_bad_input(kHeaderFile, "duplicate", "w"));
  CHECK_THAT(refusal_of_header(fmt::format(R"({{"ww":{{{0}}},"\u0077w":{{{0}}}}})", kGood)),
             is_bad_input(kHeaderFile, "duplicate", "ww"));
}

TEST_CASE("header parser rejects a duplicate field", "[formats]") {
  CHECK_THAT(refusal_of_entry(fmt::format(R"({},"dtype":"F32")", kGood)),
             is_bad_input(kHeaderFile, "tensor w", "duplicate field dtype"));
  CHECK_THAT(refusal_of_entry(fmt::format(R"({},"shape":[1])", kGood)),
             is_bad_input(kHeaderFile, "tensor w", "duplicate field shape"));
  CHECK_THAT(refusal_of_entry(fmt::format(R"({},"data_offs\u0065ts":[0,4])", kGood)),
             is_bad_input(kHeaderFile, "tensor w", "duplicate field data_offsets"));
}

TEST_CASE("header parser rejects deep nesting without exhausting the stack", "[formats]") {
  std::string deep = "{\"w\":";
  for (int i = 0; i < 100'000; ++i) {
    deep += "{\"w\":";
  }
  CHECK_THAT(refusal_of_header(deep), is_bad_input(kHeaderFile, "tensor w"));
  CHECK_THAT(refusal_of_header("{\"w\":" + std::string(100'000, '[')),
             is_bad_input(kHeaderFile, "w"));
  CHECK_THAT(refusal_of_entry(R"("dtype":"F32","shape":)" + std::string(100'000, '[')),
             is_bad_input(kHeaderFile, "tensor w", "shape"));
  CHECK_THAT(refusal_of_entry(R"("dtype":{"a":"F32"})"),
             is_bad_input(kHeaderFile, "tensor w", "dtype"));
}

TEST_CASE("header parser names the missing field", "[formats]") {
  CHECK_THAT(refusal_of_entry(R"("shape":[1],"data_offsets":[0,4])"),
             is_bad_input(kHeaderFile, "tensor w", "dtype is missing"));
  CHECK_THAT(refusal_of_entry(R"("dtype":"F32","data_offsets":[0,4])"),
             is_bad_input(kHeaderFile, "tensor w", "shape is missing"));
  CHECK_THAT(refusal_of_entry(R"("dtype":"F32","shape":[1])"),
             is_bad_input(kHeaderFile, "tensor w", "data_offsets is missing"));
  CHECK_THAT(refusal_of_entry(""), is_bad_input(kHeaderFile, "tensor w", "dtype is missing"));
}

TEST_CASE("header parser rejects unknown dtypes and dtypes that are not strings", "[formats]") {
  CHECK_THAT(refusal_of_entry(R"("dtype":"F128","shape":[1],"data_offsets":[0,4])"),
             is_bad_input(kHeaderFile, "tensor w", "unknown dtype F128"));
  CHECK_THAT(refusal_of_entry(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"),
             is_bad_input(kHeaderFile, "tensor w", "unknown dtype f32"));
  CHECK_THAT(refusal_of_entry(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"),
             is_bad_input(kHeaderFile, "tensor w", "dtype", "32", "string"));
}

TEST_CASE("header parser rejects unknown fields", "[formats]") {
  CHECK_THAT(refusal_of_entry(fmt::format(R"({},"strides":[1])", kGood)),
             is_bad_input(kHeaderFile, "tensor w", "unknown field strides"));
}

TEST_CASE("header parser rejects dimensions that are not whole numbers", "[formats]") {
  for (const std::string_view size : {"-1", "1.0", "1e0", "1.5", "null", "\"1\"", "[1]", "true"}) {
    CAPTURE(size);
    CHECK_THAT(
        refusal_of_entry(fmt::format(R"("dtype":"F32","shape":[{}],"data_offsets":[0,4])", size)),
        is_bad_input(kHeaderFile, "tensor w", "shape", "whole numbers"));
  }
}

TEST_CASE("header parser rejects numbers out of range", "[formats]") {
  CHECK_THAT(
      refusal_of_entry(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4])"),
      is_bad_input(kHeaderFile, "tensor w", "shape", "18446744073709551616"));
  CHECK_THAT(
      refusal_of_entry(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"),
      is_bad_input(kHeaderFile, "tensor w", "shape", "9223372036854775808"));
  CHECK_THAT(
      refusal_of_entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551620])"),
      is_bad_input(kHeaderFile, "tensor w", "data_offsets", "18446744073709551620"));
}

TEST_CASE("header parser rejects offsets that are not two whole numbers", "[formats]") {
  for (const std::string_view offsets : {"[]", "[0]", "[0,4,4]", "[0,-4]", "[0,4.0]", "[\"0\",4]",
                                         "[0,null]", "4", "{}", "[[0,4]]"}) {
    CAPTURE(offsets);
    CHECK_THAT(
        refusal_of_entry(fmt::format(R"("dtype":"F32","shape":[1],"data_offsets":{})", offsets)),
        is_bad_input(kHeaderFile, "tensor w", "data_offsets"));
  }
}

TEST_CASE("header parser rejects a range that ends before it begins", "[formats]") {
  CHECK_THAT(refusal_of_entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
             is_bad_input(kHeaderFile, "tensor w", "begin 4 after end 0"));
}

TEST_CASE("header parser rejects a range whose length differs from its shape", "[formats]") {
  CHECK_THAT(refusal_of_entry(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,20])"),
             is_bad_input(kHeaderFile, "tensor w", "span 20 bytes", "[2, 3] of F32 need 24"));
  CHECK_THAT(refusal_of_entry(R"("dtype":"F32","shape":[],"data_offsets":[0,0])"),
             is_bad_input(kHeaderFile, "tensor w", "span 0 bytes", "need 4"));
}

TEST_CASE("header parser rejects shapes whose elements or bytes overflow", "[formats]") {
  CHECK_THAT(
      refusal_of_entry(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
      is_bad_input(kHeaderFile, "tensor w", "[4294967296, 4294967296]", "too many elements"));
  CHECK_THAT(
      refusal_of_entry(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"),
      is_bad_input(kHeaderFile, "tensor w", "[2305843009213693952] of F64", "too many bytes"));
}

TEST_CASE("header parser rejects sub-byte tensors that do not fill bytes", "[formats]") {
  CHECK_THAT(refusal_of_entry(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"),
             is_bad_input(kHeaderFile, "tensor w", "[3] of F4", "whole bytes"));
  CHECK_THAT(refusal_of_entry(R"("dtype":"F6_E2M3","shape":[2],"data_offsets":[0,2])"),
             is_bad_input(kHeaderFile, "tensor w", "[2] of F6_E2M3", "whole bytes"));
}

TEST_CASE("header parser rejects metadata that does not map strings to strings", "[formats]") {
  for (const std::string_view value : {"3", "-3", "1.5", "null", "true", "{}", "[\"a\"]"}) {
    CAPTURE(value);
    CHECK_THAT(refusal_of_header(fmt::format(R"({{"__metadata__":{{"key":{}}}}})", value), 0),
               is_bad_input(kHeaderFile, "__metadata__", "key", "string"));
  }
  CHECK_THAT(refusal_of_header(R"({"__metadata__":"pt"})", 0),
             is_bad_input(kHeaderFile, "__metadata__", "object"));
  CHECK_THAT(refusal_of_header(R"({"__metadata__":{"key":"1","key":"2"}})", 0),
             is_bad_input(kHeaderFile, "__metadata__", "duplicate", "key"));
  CHECK_THAT(refusal_of_header(R"({"__metadata__":{},"__metadata__":{}})", 0),
             is_bad_input(kHeaderFile, "duplicate", "__metadata__"));
}

TEST_CASE("control bytes in tensor names are escaped in messages", "[formats]") {
  CHECK_THAT(refusal_of_header(R"({"a\u0000b\u001b[2J\nc":{"dtype":"F32"}})"),
             is_bad_input(kHeaderFile, R"(a\x00b\x1b[2J\x0ac)", "shape is missing"));
  const std::string long_name(5000, 'n');
  const Error refusal = refusal_of_header(fmt::format(R"({{"{}":{{}}}})", long_name));
  CHECK(std::strlen(refusal.what()) < 400);
}

TEST_CASE("header parser rejects more than 64 dimensions", "[formats]") {
  const auto header_of_rank = [](int rank) {
    std::string shape = "1";
    for (int i = 1; i < rank; ++i) {
      shape += ",1";
    }
    return header_with_entry(
        fmt::format(R"("dtype":"F32","shape":[{}],"data_offsets":[0,4])", shape));
  };
  CHECK(tensors_in(header_of_rank(64), 4).front().shape.size() == 64);
  CHECK_THAT(refusal_of_header(header_of_rank(65)),
             is_bad_input(kHeaderFile, "tensor w", "more than 64 dimensions"));
}

TEST_CASE("header parser rejects more tensors or metadata than the limits", "[formats]") {
  std::string header = "{";
  for (int i = 0; i <= 100'000; ++i) {
    fmt::format_to(std::back_inserter(header),
                   R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
  }
  header.back() = '}';
  CHECK_THAT(refusal_of_header(header, 0), is_bad_input(kHeaderFile, "more than 100000 tensors"));
  std::string metadata;
  for (int i = 0; i < 10'000; ++i) {
    metadata += fmt::format(R"("{}":"",)", i);
  }
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> keys;
  parse_safetensors_header(R"({"__metadata__":{)" + metadata.substr(0, metadata.size() - 1) + "}}",
                           0, kHeaderFile, tensors, keys);
  CHECK(keys.size() == 10'000);
  CHECK_THAT(refusal_of_header(R"({"__metadata__":{)" + metadata + R"("x":""}})", 0),
             is_bad_input(kHeaderFile, "more than 10000 __metadata__ keys"));
}

}  // namespace
}  // namespace regroup

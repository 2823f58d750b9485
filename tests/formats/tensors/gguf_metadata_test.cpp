// Typed access to GGUF metadata, and changes to it.
#include "formats/tensors/gguf_metadata.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/gguf_builder.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

GgufMetadata with_entry(std::string key, GgufType type, std::string bytes) {
  GgufMetadata metadata("m.gguf");
  metadata.set({std::move(key), type, std::move(bytes)});
  return metadata;
}

TEST_CASE("whole numbers of every width are read as counts", "[formats]") {
  const std::string seven = gguf_u64(7);
  for (const GgufType type : {GgufType::kU8, GgufType::kI8, GgufType::kU16, GgufType::kI16,
                              GgufType::kU32, GgufType::kI32, GgufType::kU64, GgufType::kI64}) {
    CAPTURE(name_of(type));
    const GgufMetadata metadata = with_entry("k", type, seven.substr(0, gguf_bytes_of(type)));
    CHECK(metadata.count("k") == 7);
    CHECK(metadata.number("k") == 7.0);
    CHECK(metadata.counts("k") == std::vector<std::int64_t>{7});
  }
}

TEST_CASE("an f32 is read as its shortest decimal", "[formats]") {
  GgufMetadata metadata;
  metadata.set_f32("k", 1e-5F);
  CHECK(metadata.number("k") == 1e-5);
}

TEST_CASE("an f64 is read exactly", "[formats]") {
  const GgufMetadata metadata =
      with_entry("k", GgufType::kF64, bytes_of_numbers(std::vector<double>{0.1}));
  CHECK(metadata.number("k") == 0.1);
  CHECK_THAT(refusal_of([&] { metadata.count("k"); }), is_bad_input("m.gguf", "k is 0.1 (f64)"));
}

TEST_CASE("getters refuse other types with the file and the key", "[formats]") {
  GgufMetadata metadata("m.gguf");
  metadata.set_string("text", "x");
  metadata.set_f32("half", 0.5F);
  metadata.set({"minus", GgufType::kI32, gguf_u32(~0U)});
  metadata.set({"large", GgufType::kU64, gguf_u64(~std::uint64_t{0})});
  metadata.set_array("list", std::span<const float>(std::vector<float>{1.0F}));
  CHECK_THAT(refusal_of([&] { metadata.count("text"); }), is_bad_input("m.gguf", "text", "string"));
  CHECK_THAT(refusal_of([&] { metadata.count("half"); }), is_bad_input("half", "0.5"));
  CHECK_THAT(refusal_of([&] { metadata.count("minus"); }), is_bad_input("minus", "-1"));
  CHECK_THAT(refusal_of([&] { metadata.count("large"); }), is_bad_input("large", "u64"));
  CHECK_THAT(refusal_of([&] { metadata.number("text"); }), is_bad_input("text", "number"));
  CHECK_THAT(refusal_of([&] { metadata.flag("half"); }), is_bad_input("half", "bool"));
  CHECK_THAT(refusal_of([&] { metadata.text("half"); }), is_bad_input("half", "string"));
  CHECK_THAT(refusal_of([&] { metadata.array("half"); }), is_bad_input("half", "array"));
  CHECK_THAT(refusal_of([&] { metadata.counts("list"); }), is_bad_input("list", "whole number"));
  metadata.set_array("words", std::span<const std::string>(std::vector<std::string>{"x"}));
  CHECK_THAT(refusal_of([&] { metadata.counts("words"); }), is_bad_input("words", "whole number"));
  CHECK_FALSE(metadata.array("words")->integers());
  CHECK_FALSE(metadata.array("words")->numbers());
  metadata.set({"strange", static_cast<GgufType>(99), gguf_u32(1)});
  CHECK_THAT(refusal_of([&] { metadata.count("strange"); }),
             is_bad_input("strange is of type unknown"));
  CHECK_FALSE(metadata.counts("absent"));
  CHECK_FALSE(metadata.count("absent"));
  CHECK_FALSE(metadata.array("list")->strings());
  CHECK_FALSE(metadata.array("list")->integers());
}

TEST_CASE("setters replace in place or append and remove_if deletes", "[formats]") {
  GgufMetadata metadata;
  metadata.set_u32("a", 1);
  metadata.set_bool("b", true);
  metadata.set_string("c", "see");
  metadata.set_array("d", std::span<const std::int32_t>(std::vector<std::int32_t>{-1, 2}));
  metadata.set_array("e", std::span<const std::string>(std::vector<std::string>{"x", "", "yz"}));
  metadata.set_string("a", "now a string");
  for (int times = 0; times < 2; ++times) {  // the second finds nothing to remove
    metadata.remove_if([](std::string_view key) { return key == "b"; });
    CHECK_FALSE(metadata.contains("b"));
  }
  metadata.set_u32("f", 6);
  std::string keys;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    keys += entry.key;
  }
  CHECK(keys == "acdef");
  CHECK(metadata.text("a") == "now a string");
  CHECK(metadata.text("c") == "see");
  CHECK(metadata.array("d")->integers() == std::vector<std::int64_t>{-1, 2});
  CHECK(metadata.array("d")->numbers() == std::vector<double>{-1.0, 2.0});
  CHECK(metadata.array("e")->strings() == std::vector<std::string_view>{"x", "", "yz"});
  CHECK(metadata.count("f") == 6);
  CHECK_FALSE(metadata.flag("b"));
}

}  // namespace
}  // namespace regroup

// Reading untrusted JSON, and editing JSON without other changes.
#include "formats/base/json.h"

#include <cmath>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <fmt/format.h>

#include "formats/spec/config_reader.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

using std::string_literals::operator""s;

TEST_CASE("replacing a member keeps every other byte", "[formats]") {
  CHECK(with_member(R"({"a":1,"b":2})", {"a"}, "[7, 8]") == R"({"a":[7, 8],"b":2})");
  CHECK(with_member("{ \"a\" :\t1 ,\n\"b\":2.50e0}\n\n", {"a"}, "3") ==
        "{ \"a\" :\t3 ,\n\"b\":2.50e0}\n\n");
  CHECK(with_member("{\r\n  \"a\": {\"x\": [1, {\"y\": 2}]},\r\n  \"b\": null\r\n}", {"a"}, "0") ==
        "{\r\n  \"a\": 0,\r\n  \"b\": null\r\n}");
  CHECK(with_member(R"({"last":12})", {"last"}, "5") == R"({"last":5})");
  CHECK(with_member(R"({"last":"text"   })", {"last"}, "5") == R"({"last":5   })");
}

TEST_CASE("a new member is appended and indented like its neighbours", "[formats]") {
  CHECK(with_member("{\n  \"a\": 1,\n  \"b\": 2\n}\n", {"c"}, "3") ==
        "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}\n");
  CHECK(with_member("{\n\t\"a\": 1\n}", {"c"}, "3") == "{\n\t\"a\": 1,\n\t\"c\": 3\n}");
  CHECK(with_member(R"({"a":1})", {"c"}, "3") == R"({"a":1,"c": 3})");
  CHECK(with_member(R"({ "a": 1, "b": 2 })", {"c"}, "3") == R"({ "a": 1, "b": 2, "c": 3 })");
}

TEST_CASE("a member can be added to an empty object", "[formats]") {
  CHECK(with_member("{}", {"c"}, "3") == R"({"c": 3})");
  CHECK(with_member("{}\n", {"c"}, "3") == "{\"c\": 3}\n");
  CHECK(Json::parse(with_member(" {\n} ", {"c"}, "3")) == Json{{"c", 3}});
}

TEST_CASE("nested members are edited in place and missing parents are created", "[formats]") {
  CHECK(with_member(R"({"a": {"b": 1, "c": 2}, "d": 3})", {"a", "b"}, "9") ==
        R"({"a": {"b": 9, "c": 2}, "d": 3})");
  CHECK(with_member(R"({"a": {"b": 1}})", {"a", "c"}, "9") == R"({"a": {"b": 1,"c": 9}})");
  CHECK(with_member(R"({"a": {}})", {"a", "c"}, "9") == R"({"a": {"c": 9}})");
  CHECK(Json::parse(with_member(R"({"x": 1})", {"a", "b", "c"}, "9")) ==
        Json::parse(R"({"x": 1, "a": {"b": {"c": 9}}})"));
}

TEST_CASE("adding a member to a value that is not an object is refused", "[formats]") {
  for (const std::string_view value : {"3", "[]", "\"{}\"", "null", "true"}) {
    CAPTURE(value);
    CHECK_THAT(
        refusal_of([&] { with_member(fmt::format(R"({{"a": {}}})", value), {"a", "b"}, "9"); }),
        is_bad_input("a", "object"));
  }
}

TEST_CASE("a key is not confused with text in strings or in nested objects", "[formats]") {
  CHECK(with_member(R"({"s": "\"k\": 1, {", "n": {"k": 1}, "l": [{"k": 1}], "k": 1})", {"k"},
                    "2") == R"({"s": "\"k\": 1, {", "n": {"k": 1}, "l": [{"k": 1}], "k": 2})");
  CHECK(with_member(R"({"k2": 1, "ak": 1, "K": 1, "k": 1})", {"k"}, "2") ==
        R"({"k2": 1, "ak": 1, "K": 1, "k": 2})");
  CHECK(with_member(R"({"s": "ends with \\", "k": 1})", {"k"}, "2") ==
        R"({"s": "ends with \\", "k": 2})");
  CHECK(with_member(R"({"s": "}]{[", "k": "}"})", {"k"}, "2") == R"({"s": "}]{[", "k": 2})");
}

TEST_CASE("an escaped key is found", "[formats]") {
  CHECK(with_member(R"({"\u006b": 1})", {"k"}, "2") == R"({"\u006b": 2})");
  CHECK(with_member(R"({"a\"b": 1})", {"a\"b"}, "2") == R"({"a\"b": 2})");
  CHECK(with_member(R"({"a": 1})", {"n\"\n"}, "2") == R"({"a": 1,"n\"\n": 2})");
}

TEST_CASE("editing a real config changes the value of one key and nothing else", "[formats]") {
  for (const std::string_view name :
       {"llama", "llama_bf16", "llama_fp16", "llama_mha", "llama_sharded", "qwen2", "mistral",
        "gpt2", "gpt2_base", "bloom", "bloom_base", "bloom_12", "equal_heads", "equal_heads_gpt2",
        "equal_heads_bloom"}) {
    CAPTURE(name);
    const std::string text = bytes_of_file(golden(name) / "config.json");
    const Json config = parse_json_object(text, "config.json");
    for (const std::string key : {"num_key_value_heads", "model_type", "vocab_size", "regroup"}) {
      CAPTURE(key);
      const std::string edited = with_member(text, {key}, R"({"marker": 1})");
      Json expected = config;
      expected[key] = {{"marker", 1}};
      CHECK(parse_json_object(edited, "config.json") == expected);
      // Without the new value, the text equals the old one without its value.
      if (config.contains(key)) {
        const std::string old_value = config[key].dump();
        std::string restored = edited;
        restored.replace(restored.find(R"({"marker": 1})"), 13, old_value);
        CHECK(restored == text);
      } else {
        CHECK(edited.starts_with(text.substr(0, text.rfind('}') - 1)));
      }
    }
  }
}

TEST_CASE("JSON reader rejects anything but one object", "[formats]") {
  for (const std::string_view text : {"[]", "3", "null", "\"{}\"", "true"}) {
    CAPTURE(text);
    CHECK_THAT(refusal_of([&] { parse_json_object(text, "config.json"); }),
               is_bad_input("config.json", "an object is needed"));
  }
  for (const std::string& text : {""s, " "s, "{"s, "{}{}"s, "{} x"s, "{\"a\":1,}"s, "{NaN:1}"s,
                                  "{\"a\":NaNs}"s, "{\"a\":+Infinity}"s, "{\"a\":NaN"s,
                                  "{\"a\":\"\xff\"}"s, "{// comment\n}"s, "<!DOCTYPE html>"s}) {
    CAPTURE(text);
    CHECK_THAT(refusal_of([&] { parse_json_object(text, "config.json"); }),
               is_bad_input("config.json", "not valid JSON"));
  }
}

TEST_CASE("the constants that Python writes are strings, and stay in an edited text", "[formats]") {
  const std::string text = R"({"a": NaN, "b": [Infinity , -Infinity], "c": "\\\"NaN,", "NaN": 1})";
  const Json parsed = parse_json_object(text, "config.json");
  CHECK(parsed ==
        Json{{"a", "NaN"}, {"b", {"Infinity", "-Infinity"}}, {"c", "\\\"NaN,"}, {"NaN", 1}});
  CHECK(with_member(text, {"NaN"}, "2") == text.substr(0, text.size() - 2) + "2}");
  CHECK_THAT(refusal_of([&] { ConfigReader(parsed, "config.json").number_or({"a"}, 1); }),
             is_bad_input("config.json", "a is \"NaN\"", "number"));
}

TEST_CASE("JSON reader rejects a byte order mark and NUL bytes", "[formats]") {
  for (const std::string& text :
       {"\xef\xbb\xbf{\"a\": 1}"s, "{\"a\": 1}\0"s, "{\"a\": 1}\0{\"a\": 2}"s, "{\"a\": 1\0}"s}) {
    CAPTURE(text);
    CHECK_THAT(refusal_of([&] { parse_json_object(text, "config.json"); }),
               is_bad_input("config.json", "not valid JSON"));
  }
}

TEST_CASE("JSON reader rejects duplicate keys at any depth", "[formats]") {
  CHECK_THAT(refusal_of([] { parse_json_object(R"({"a": 1, "a": 1})", "config.json"); }),
             is_bad_input("config.json", "duplicate key \"a\""));
  CHECK_THAT(refusal_of([] { parse_json_object(R"({"l": [{"x": {"b": 1, "\u0062": 2}}]})", "c"); }),
             is_bad_input("c", "duplicate key \"b\""));
  CHECK(parse_json_object(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]})", "c").size() == 2);
}

TEST_CASE("JSON reader rejects objects with too many members", "[formats]") {
  std::string text = "{";
  for (int i = 0; i <= 10'000; ++i) {
    text += fmt::format("{}\"{}\": 0", i == 0 ? "" : ", ", i);
  }
  text += "}";
  CHECK_THAT(refusal_of([&] { parse_json_object(text, "config.json"); }),
             is_bad_input("config.json", "more than 10000 members"));
  CHECK(parse_sorted_json_object(text, "index").size() == 10'001);
}

TEST_CASE("long lists of objects are read in linear time", "[formats]") {
  constexpr std::size_t kObjects = 400'000;  // quadratic time would take minutes
  std::string list;
  for (std::size_t i = 0; i < kObjects; ++i) {
    list += i == 0 ? R"({"a":1})" : R"(,{"a":1})";
  }
  CHECK(parse_json_object(R"({"x":[)" + list + "]}", "c")["x"].size() == kObjects);
  CHECK_THAT(refusal_of([&] { parse_json_object(R"({"x":[)" + list + R"(],"x":1})", "c"); }),
             is_bad_input("duplicate key \"x\""));
}

TEST_CASE("JSON reader rejects many objects of many members", "[formats]") {
  std::string object = "{";
  for (int i = 0; i < 9000; ++i) {
    object += fmt::format(R"({}"{}":0)", i == 0 ? "" : ",", i);
  }
  object += "}";
  const auto several = [&](int count) {
    std::string text = "{\"x\":[" + object;
    for (int i = 1; i < count; ++i) {
      text += "," + object;
    }
    return text + "]}";
  };
  CHECK(parse_json_object(several(2), "c")["x"].size() == 2);
  CHECK_THAT(refusal_of([&] { parse_json_object(several(3), "c"); }),
             is_bad_input("c", "too many objects with thousands of members"));
}

TEST_CASE("JSON reader rejects deep nesting without exhausting the stack", "[formats]") {
  const auto nested = [](std::size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  CHECK(parse_json_object(nested(60), "c").size() == 1);
  CHECK_THAT(refusal_of([&] { parse_json_object(nested(100), "c"); }),
             is_bad_input("c", "deeper than 64"));
  CHECK_THAT(refusal_of([&] { parse_json_object(nested(100'000), "c"); }),
             is_bad_input("c", "deeper than 64"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += "{\"a\":";
  }
  CHECK_THAT(refusal_of([&] { parse_json_object(objects, "c"); }),
             is_bad_input("c", "deeper than 64"));
}

TEST_CASE("replacing elements of a list keeps every other byte", "[formats]") {
  const auto counted = [](std::size_t i, std::string_view element) {
    return fmt::format("{}:{}", i, element);
  };
  CHECK(with_each_element("{\"a\": [ 1 ,[2, \"]\"]\n,{} ] }", {"a"}, counted) ==
        "{\"a\": [ 0:1 ,1:[2, \"]\"]\n,2:{} ] }");
  CHECK(with_each_element(R"({"a": {"b": ["x"], "c": [3]}})", {"a", "b"}, counted) ==
        R"({"a": {"b": [0:"x"], "c": [3]}})");
  CHECK(with_each_element(R"({"a": [ ]})", {"a"}, counted) == R"({"a": [ ]})");
  for (const char* object : {"{}", R"({"a": {}})", R"({"b": []})", R"({"a": "[]"})"}) {
    CAPTURE(object);
    CHECK_THAT(refusal_of([&] { with_each_element(object, {"a"}, counted); }),
               is_bad_input("a is not a list"));
  }
  CHECK_THAT(refusal_of([&] { with_each_element(R"({"a": [1]})", {"a", "b"}, counted); }),
             is_bad_input("a is not an object"));
}

}  // namespace
}  // namespace regroup

// What JsonReader accepts and reports, compared with another parser.
#include "formats/base/json_events.h"

#include <random>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "formats/base/error.h"

namespace regroup {
namespace {

using Document = nlohmann::json;

// Builds the value that begins with `event`. The other parser reads all numbers that are not whole.
Document value_of(JsonReader& json, const JsonEvent& event) {
  switch (event.kind) {
    case JsonKind::kNull: return nullptr;
    case JsonKind::kBoolean: return event.number == 1;
    case JsonKind::kWholeNumber: return event.number;
    case JsonKind::kOtherNumber: return Document::parse(event.text, nullptr, false);
    case JsonKind::kString: return std::string(event.text);
    default: break;
  }
  const bool object = event.kind == JsonKind::kObject;
  Document document = object ? Document::object() : Document::array();
  for (JsonEvent next = json.next();
       next.kind != (object ? JsonKind::kObjectEnd : JsonKind::kArrayEnd); next = json.next()) {
    if (object) {
      REQUIRE(next.kind == JsonKind::kKey);
      const std::string key(next.text);
      document[key] = value_of(json, json.next());
    } else {
      document.push_back(value_of(json, next));
    }
  }
  return document;
}

struct Outcome {
  bool accepted = false;
  Document document;
  std::string fault;
};

Outcome read(std::string_view text) {
  JsonReader json(text, "text:");
  try {
    Document document = value_of(json, json.next());
    return {json.next().kind == JsonKind::kEnd, std::move(document), ""};
  } catch (const Error& fault) {
    return {false, {}, fault.what()};
  }
}

constexpr std::string_view kDocuments[] = {
    R"({"w":{"dtype":"F32","shape":[1,20,300],"data_offsets":[0,24000]},"__metadata__":{"a":"b"}})",
    R"([])",
    R"({})",
    R"( [ 1 , -2 , 3.5e-3 , 0 , -0.0 , 1E+9 , 18446744073709551615 , 18446744073709551616 ] )",
    R"({"a":null,"b":[true,false,[[],{}]],"":""})",
    "{\n\t\"k\\u0065y \\\\ \\\" \\/ \\b\\f\\n\\r\\t\": \"\\ud83d\\ude00 \\u00e9 \\u20ac\"\r\n}",
    "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf\"",
    "\"\xe0\xa0\x80 \xe0\xbf\xbf \xf0\x90\x80\x80\"",
    R"(7)",
    R"("only text")",
};

TEST_CASE("events build the document that another parser builds", "[formats]") {
  for (const std::string_view text : kDocuments) {
    CAPTURE(text);
    const Outcome found = read(text);
    CHECK(found.accepted);
    CHECK(found.document == Document::parse(text));
  }
}

struct Fault {
  std::string_view text;
  std::size_t at;
};

void check_refused(std::initializer_list<Fault> faults) {
  for (const auto& [text, at] : faults) {
    CAPTURE(text);
    const Outcome found = read(text);
    CHECK_FALSE(found.accepted);
    CHECK(found.fault.starts_with(fmt::format("text: not valid JSON at byte {}: ", at)));
    CHECK(!found.fault.ends_with(": "));
  }
}

TEST_CASE("invalid structures are refused with their position", "[formats]") {
  check_refused({
      {"", 0},
      {" ", 1},
      {"{", 1},
      {"[1,]", 3},
      {"{\"a\":1,}", 7},
      {"[1 2]", 3},
      {"{\"a\" 1}", 5},
      {"{a:1}", 1},
      {"\xef\xbb\xbf{}", 0},
      {"{} {}", 3},
      {"[]]", 2},
      {"[}", 1},
      {"/**/[]", 0},
  });
  CHECK_FALSE(read(std::string_view("[\0]", 3)).accepted);
}

TEST_CASE("invalid numbers and words are refused with their position", "[formats]") {
  check_refused({
      {"[01]", 2},
      {"[-]", 2},
      {"[1.]", 3},
      {"[1e]", 3},
      {"[+1]", 1},
      {"[.5]", 1},
      {"[nul]", 1},
      {"[fals]", 1},
      {"[True]", 1},
      {"[NaN]", 1},
  });
}

TEST_CASE("invalid strings are refused with their position", "[formats]") {
  check_refused({
      {"'a'", 0},
      {"\"a", 2},
      {"\"\\x\"", 2},
      {"\"\\u12g4\"", 5},
      {"\"\\ud800\"", 7},
      {"\"\\udc00\"", 7},
      {"\"\\ud800\\u0041\"", 13},
      {"\"a\nb\"", 2},
      {"\"\x7f\x80\"", 2},
      {"\"\xc0\xaf\"", 1},
      {"\"\xe0\x80\x80\"", 1},
      {"\"\xed\xa0\x80\"", 1},
      {"\"\xf4\x90\x80\x80\"", 1},
      {"\"\xe2\x82\"", 1},
  });
}

TEST_CASE("every byte at every place of a long string is accepted or refused as by another parser",
          "[formats]") {
  for (std::size_t place = 0; place < 20; ++place) {
    for (int byte = 0; byte < 256; ++byte) {
      CAPTURE(place, byte);
      std::string text = "\"abcdefghijklmnopqrst\"";
      text[1 + place] = static_cast<char>(byte);
      const Outcome found = read(text);
      CHECK(found.accepted == Document::accept(text));
      CHECK((!found.accepted || found.document == Document::parse(text)));
    }
  }
}

TEST_CASE("documents with random changes are accepted or refused as by another parser",
          "[formats]") {
  constexpr std::string_view kBytes = "{}[]\",:\\u0123.-+eE tfn\n\x80\xc3\xa9\xed\xf4\x1f";
  std::mt19937 random(1);
  const auto below = [&](std::size_t bound) { return random() % bound; };
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text(kDocuments[below(std::size(kDocuments))]);
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t at = below(text.size() + 1);
      const char byte = kBytes[below(kBytes.size())];
      const std::size_t how = below(3);
      if (how == 0) {
        text.insert(at, 1, byte);
      } else if (at < text.size()) {
        how == 1 ? text.replace(at, 1, 1, byte) : text.erase(at, 1);
      }
    }
    const Document expected = Document::parse(text, nullptr, false);
    CAPTURE(text);
    const Outcome found = read(text);
    // The other parser refuses numbers beyond double.
    if (text.find_first_of("eE") == std::string::npos) {
      REQUIRE(found.accepted == !expected.is_discarded());
    }
    if (found.accepted && !expected.is_discarded()) {
      ++accepted;
      REQUIRE(found.document == expected);
    }
  }
  CHECK(accepted > 10'000);
}

TEST_CASE("events come one by one: what follows is not read yet", "[formats]") {
  JsonReader json("[false,1,2", "text:");
  CHECK(json.next().kind == JsonKind::kArray);
  const JsonEvent boolean = json.next();
  CHECK(boolean.kind == JsonKind::kBoolean);
  CHECK(boolean.number == 0);
  CHECK(json.next().number == 1);
  CHECK(json.next().number == 2);
  CHECK_THROWS_AS(json.next(), Error);
}

TEST_CASE("strings with escapes are reported whole", "[formats]") {
  CHECK(read(R"(["\u0041b\u0043","plain","\n"])").document ==
        Document::array({"AbC", "plain", "\n"}));
}

}  // namespace
}  // namespace regroup

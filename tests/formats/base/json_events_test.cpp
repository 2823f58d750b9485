// What read_json_events() accepts and reports, compared with another parser.
#include "formats/base/json_events.h"

#include <random>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

namespace regroup {
namespace {

using Document = nlohmann::json;

// Builds a document. The other parser reads all numbers that are not whole.
class Builder : public JsonEvents {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool whole_number(std::uint64_t value) override { return put(value); }
  bool other_number(std::string_view spelling) override {
    return put(Document::parse(spelling, nullptr, false));
  }
  bool string(std::string_view value) override { return put(std::string(value)); }
  bool key(std::string_view name) override {
    key_.back() = name;
    return true;
  }
  bool start_object() override { return open(Document::object()); }
  bool start_array() override { return open(Document::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool broken(std::size_t position, std::string_view why) override {
    at = position;
    fault = why;
    return false;
  }

  Document document;
  std::size_t at = 0;
  std::string fault;

 private:
  bool put(Document value) {
    if (open_.empty()) {
      document = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      open_.back()[key_.back()] = std::move(value);
    }
    return true;
  }
  bool open(Document empty) {
    open_.push_back(std::move(empty));
    key_.emplace_back();
    return true;
  }
  bool close() {
    Document finished = std::move(open_.back());
    open_.pop_back();
    key_.pop_back();
    return put(std::move(finished));
  }

  std::vector<Document> open_;
  std::vector<std::string> key_;
};

struct Outcome {
  bool accepted = false;
  Document document;
  std::size_t at = 0;
  std::string fault;
};

Outcome read(std::string_view text) {
  Builder builder;
  const bool accepted = read_json_events(text, builder);
  return {accepted, std::move(builder.document), builder.at, std::move(builder.fault)};
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
    CHECK(found.at == at);
    CHECK(!found.fault.empty());
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

TEST_CASE("an event that returns false ends the reading", "[formats]") {
  class Impatient : public Builder {
   public:
    bool whole_number(std::uint64_t) override {
      ++numbers;
      return false;
    }
    bool boolean(bool) override { return false; }
    int numbers = 0;
  } events;
  CHECK_FALSE(read_json_events("[false,1,2", events));
  CHECK_FALSE(read_json_events("[true,1,2", events));
  CHECK(events.numbers == 0);
  CHECK_FALSE(read_json_events("[1,2,3", events));
  CHECK(events.numbers == 1);
  CHECK(events.fault.empty());
}

TEST_CASE("strings with escapes are reported whole", "[formats]") {
  CHECK(read(R"(["\u0041b\u0043","plain","\n"])").document ==
        Document::array({"AbC", "plain", "\n"}));
}

}  // namespace
}  // namespace regroup

// The record of a conversion as text.
#include "cli/report/conversion_facts.h"

#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;
using Record = std::map<std::string, std::string>;

std::string fact(const Record& record, const std::string& name) {
  const auto facts = conversion_facts(record);
  const auto found = std::find_if(facts.begin(), facts.end(),
                                  [&](const auto& each) { return each.first == name; });
  return found == facts.end() ? "" : found->second;
}

Record solved() {
  return {{"version", "0.1.0"},
          {"source_kv_heads", "12"},
          {"kv_heads", "[4,4,2]"},
          {"pool", "lowrank"},
          {"grouping", "similar"},
          {"query_order", "[[0,1,2],[2,0,1],[0,1,2]]"},
          {"calibration_tokens", "8192"},
          {"calibration", "\"4c1d\""},
          {"refit", R"({"tokens":131072,"context":512,"steps":200,"tokens_per_step":1024})"},
          {"source_fingerprint", "\"0f3a\""}};
}

TEST_CASE("a record's text names pooling and grouping and calibration and refit", "[cli]") {
  CHECK(fact(solved(), "kv heads") == "12 -> 4 x 2, 2 x 1 (heads x layers)");
  CHECK(fact(solved(), "pooling") == "lowrank");
  CHECK(fact(solved(), "grouping") == "similar, heads moved in 1 of 3 layers");
  CHECK(fact(solved(), "calibration") == "8,192 tokens (statistics 4c1d)");
  CHECK(fact(solved(), "refit") ==
        "200 steps of 1,024 tokens on each attention, on a text of 131,072 tokens");
  CHECK(fact(solved(), "source") == "0f3a");
  CHECK_THAT(conversion_text(solved()),
             ContainsSubstring("(lowrank, similar) by regroup 0.1.0\n") &&
                 ContainsSubstring("calibration 8,192 tokens") &&
                 ContainsSubstring("refit 200 steps"));
}

TEST_CASE("a record's text says if there was no calibration or refit", "[cli]") {
  const Record mean{{"version", "0.1.0"}, {"source_kv_heads", "12"},  {"kv_heads", "4"},
                    {"pool", "mean"},     {"grouping", "contiguous"}, {"query_order", "null"}};
  CHECK(fact(mean, "calibration") == "none");
  CHECK(fact(mean, "refit") == "none");
  CHECK(conversion_text(mean) ==
        "from 12 kv heads to 4 (mean, contiguous) by regroup 0.1.0\ncalibration none; refit none");
}

TEST_CASE("an expanded model is not described as pooled", "[cli]") {
  const Record expanded{{"version", "0.1.0"}, {"source_kv_heads", "4"},
                        {"kv_heads", "4"},    {"stored_kv_heads", "8"},
                        {"pool", "mean"},     {"grouping", "contiguous"}};
  CHECK(fact(expanded, "pooling").empty());
  CHECK(fact(expanded, "stored as") == "8 kv heads: some are stored several times");
  CHECK(conversion_text(expanded) == "4 kv heads, stored as 8, by regroup 0.1.0");
}

TEST_CASE("a malformed record is described as far as possible", "[cli]") {
  CHECK(conversion_facts({}).empty());
  CHECK(conversion_text({{"kv_heads", "4"}}).empty());
  const Record odd{{"pool", "\x1b[31m"},     {"kv_heads", "{"},    {"source_kv_heads", "[\"a\"]"},
                   {"refit", "[1]"},         {"calibration", "{"}, {"query_order", "{\"a\": 1}"},
                   {"source_positions", "1"}};
  CHECK_THAT(conversion_text(odd), !ContainsSubstring("\x1b"));
  CHECK(fact(odd, "refit") == "none");
  CHECK(fact(odd, "kv heads") == "? -> ?");
}

}  // namespace
}  // namespace regroup

// The record of a model: its steps, in order and bounded.
#include "formats/model/conversion_record.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace regroup {
namespace {

ConversionRecord record_with(const std::string& facts) {
  return ConversionRecord(Json::parse(facts));
}

TEST_CASE("a record is an object, whatever else a config or metadata hold", "[formats]") {
  CHECK(ConversionRecord().facts().is_null());
  CHECK(ConversionRecord::in_config(Json::parse(R"({"regroup": 3})")).facts().is_null());
  CHECK(ConversionRecord::in_config(Json(nullptr)).facts().is_null());
  CHECK(ConversionRecord::in_config(Json::parse(R"({"regroup": {"pool": "mean"}})")).pool.value ==
        "mean");
  const ConversionRecord flat = ConversionRecord::in_metadata({{"regroup.kv_heads", "[4,2]"},
                                                               {"regroup.pool", "mean"},
                                                               {"regroup.config", "{}"},
                                                               {"format", "pt"}});
  CHECK(flat.facts() == Json{{"kv_heads", {4, 2}}, {"pool", "mean"}});
  CHECK(flat.kv_heads.value == KvHeads{{"", {4, 2}}});
  CHECK_FALSE(flat.layers.recorded());
  CHECK(flat.converted());
}

TEST_CASE("the steps of a record are its history and then the last one", "[formats]") {
  const Json conversion{{"kv_heads", 4}, {"pool", "mean"}};
  const Json training{{"uptrain", {{"steps", 3}}}};
  CHECK(ConversionRecord().steps() == Json::array());
  CHECK(ConversionRecord(conversion).steps() == Json::array({conversion}));
  CHECK(ConversionRecord(training).steps() == Json::array({training}));
  // As versions without a history recorded a training after a conversion.
  CHECK(record_with(R"({"kv_heads": 4, "pool": "mean", "uptrain": {"steps": 3}})").steps() ==
        Json::array({conversion, training}));
  CHECK(record_with(R"({"kv_heads": 4, "pool": "mean", "uptrain": {"steps": 3},
                        "history": [{"kv_heads": 4, "pool": "mean"}]})")
            .steps() == Json::array({conversion, training}));
  CHECK(record_with(R"({"kv_heads": 4, "pool": "mean", "history": [{"uptrain": {"steps": 3}}]})")
            .steps() == Json::array({training, conversion}));
}

TEST_CASE("a step in the history has no long facts", "[formats]") {
  Json facts{{"kv_heads", 4}, {"note", std::string(1023, 'x')}};
  for (const char* key : {"layers", "checksums", "query_order", "alibi"}) {
    facts[key] = Json::object();
  }
  CHECK(ConversionRecord(facts).steps() == Json::array({Json{{"kv_heads", 4}}}));
  facts["note"] = std::string(1022, 'x');  // with its quotes, a KiB
  CHECK(ConversionRecord(facts).steps().at(0).contains("note"));
  // Not UTF-8, as metadata may hold.
  CHECK(ConversionRecord(Json{{"kv_heads", 4}, {"pool", "\xff"}}).steps().dump().size() > 0);
}

TEST_CASE("a history is bounded, and says how many steps it left out", "[formats]") {
  Json facts{{"kv_heads", 1}, {"pool", std::string(GENERATE(10, 1000), 'x')}};
  for (int i = 2; i <= 300; ++i) {
    const Json history = ConversionRecord(facts).steps();
    facts["kv_heads"] = i;
    facts["history"] = history;
  }
  const Json steps = ConversionRecord(facts).steps();
  REQUIRE(steps.size() == 33);
  CHECK(steps.front() == Json{{"left_out", 300 - 32}});
  CHECK(steps.back().at("kv_heads") == 300);
  CHECK(steps.at(1).at("kv_heads") == 300 - 31);
  Json wide{{"kv_heads", 1}};
  for (int i = 0; i < 50; ++i) {
    wide["fact" + std::to_string(i)] = std::string(1000, 'x');
  }
  wide["history"] = ConversionRecord(wide).steps();
  const Json two = ConversionRecord(wide).steps();
  CHECK(two.dump().size() < (64U << 10));
  CHECK(two.front() == Json{{"left_out", 1}});
}

TEST_CASE("a damaged history is read as far as it is one", "[formats]") {
  CHECK(record_with(R"({"history": "x"})").earlier_steps() == Json::array());
  CHECK(record_with(R"({"history": [1, {"pool": "mean"}, null]})").earlier_steps() ==
        Json::array({Json{{"pool", "mean"}}}));
  CHECK(record_with(R"({"kv_heads": 2, "history": [{"left_out": "many"}]})").steps() ==
        Json::array({Json{{"kv_heads", 2}}}));
}

}  // namespace
}  // namespace regroup

// The record in a converted model, whose config is otherwise unchanged.
#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "formats/model/conversion_record.h"
#include "formats/spec/alibi.h"
#include "formats/spec/config_writers.h"
#include "formats/version.h"

namespace regroup {
namespace {

ModelSpec spec_of(std::string family, std::int64_t query_heads, std::size_t layers) {
  ModelSpec spec;
  spec.family = std::move(family);
  spec.architecture = spec.family + "ForCausalLM";
  spec.query_heads = query_heads;
  spec.head_dim = 2;
  spec.layers.resize(layers);
  spec.kv_heads.assign(layers, query_heads);
  return spec;
}

ModelSpec llama_spec() {
  ModelSpec spec = spec_of("llama", 4, 2);
  spec.positions = PositionKind::kRope;
  spec.loaders_read_kv_heads = true;
  return spec;
}

// A conversion of `spec` between these numbers of kv heads.
struct Conversion {
  ModelSpec source, result;

  Conversion(const ModelSpec& spec, std::vector<std::int64_t> before,
             std::vector<std::int64_t> after)
      : source(spec), result(spec) {
    source.kv_heads = std::move(before);
    result.kv_heads = std::move(after);
  }
  ConversionRecord record() const {
    ConversionRecord record;
    record.set_specs(source, result, result);
    record.pool = "mean";
    record.grouping = "contiguous";
    return record;
  }
  std::string config(const std::string& text) const {
    return config_with_record(config_with_changed_heads(text, source, result), record());
  }
  std::map<std::string, std::string> metadata(std::map<std::string, std::string> before) const {
    return metadata_with_record(std::move(before), record());
  }
};

TEST_CASE("a config gets only the family's key and the regroup block", "[formats]") {
  const std::string config =
      "{\n  \"z\": 1e-05,\n  \"num_key_value_heads\": 4,\n  \"odd\":  [ 1,2 ],\n"
      "  \"a\": \"\\u00fc\"\n}\n";
  CHECK(Conversion(llama_spec(), {4, 4}, {2, 2}).config(config) ==
        "{\n  \"z\": 1e-05,\n  \"num_key_value_heads\": 2,\n  \"odd\":  [ 1,2 ],\n"
        "  \"a\": \"\\u00fc\",\n"
        "  \"regroup\": {\n"
        "    \"version\": \"" +
            std::string(kVersion) +
            "\",\n"
            "    \"source_kv_heads\": 4,\n"
            "    \"kv_heads\": 2,\n"
            "    \"pool\": \"mean\",\n"
            "    \"grouping\": \"contiguous\",\n"
            "    \"query_order\": null\n"
            "  }\n}\n");
}

TEST_CASE("different kv heads are listed per layer in config and metadata", "[formats]") {
  const Conversion conversion(llama_spec(), {4, 4}, {4, 1});
  const Json config = Json::parse(conversion.config("{}"));
  CHECK(config["num_key_value_heads"] == Json{4, 1});
  CHECK(config["regroup"]["kv_heads"] == Json{4, 1});
  CHECK(config["regroup"]["source_kv_heads"] == 4);
  const auto metadata = conversion.metadata({});
  CHECK(metadata.at("regroup.kv_heads") == "[4, 1]");
  CHECK(metadata.at("regroup.source_kv_heads") == "4");
}

TEST_CASE("a family without the key gets it only if heads are grouped", "[formats]") {
  const ModelSpec spec = spec_of("gpt2", 4, 2);
  const Json copy = Json::parse(Conversion(spec, {4, 4}, {4, 4}).config("{}"));
  CHECK_FALSE(copy.contains("num_key_value_heads"));
  CHECK(copy["regroup"]["kv_heads"] == 4);
  const Json grouped = Json::parse(Conversion(spec, {4, 4}, {2, 2}).config("{}"));
  CHECK(grouped["num_key_value_heads"] == 2);
}

TEST_CASE("an ALiBi model records one exact slope per query head", "[formats]") {
  for (const std::int64_t heads : {8, 12, 71}) {
    CAPTURE(heads);
    ModelSpec spec = spec_of("bloom", heads, 2);
    spec.positions = PositionKind::kAlibi;
    const Conversion conversion(spec, {heads, heads}, {1, 1});
    const Json alibi = Json::parse(conversion.config("{}"))["regroup"]["alibi"];
    CHECK(alibi["bias_max"] == 8.0);
    CHECK(alibi["slopes"].get<std::vector<double>>() == alibi_slopes(heads));
    const auto metadata = conversion.metadata({});
    CHECK(Json::parse(metadata.at("regroup.alibi_slopes")).get<std::vector<double>>() ==
          alibi_slopes(heads));
    CHECK(metadata.at("regroup.alibi_bias_max") == "8.0");
  }
}

TEST_CASE("recorded slopes are kept and listed per layer if they differ", "[formats]") {
  ModelSpec spec = spec_of("bloom", 2, 2);
  spec.positions = PositionKind::kAlibi;
  spec.alibi.slopes = {{0.1, 0.2}, {0.3, 0.4}};
  const Json config = Json::parse(Conversion(spec, {2, 2}, {1, 1}).config("{}"));
  CHECK(config["regroup"]["alibi"]["slopes"] == Json{{0.1, 0.2}, {0.3, 0.4}});
}

TEST_CASE("a second conversion replaces the block of the first", "[formats]") {
  const std::string once = Conversion(llama_spec(), {4, 4}, {2, 2}).config("{}");
  const std::string twice = Conversion(llama_spec(), {2, 2}, {1, 1}).config(once);
  const Json config = parse_json_object(twice, "config.json");
  CHECK(config.size() == 2);
  CHECK(config["regroup"]["source_kv_heads"] == 2);
  CHECK(config["regroup"]["kv_heads"] == 1);
}

TEST_CASE("metadata keep the source's entries and add the record", "[formats]") {
  const auto metadata =
      Conversion(llama_spec(), {4, 4}, {2, 2}).metadata({{"format", "pt"}, {"author", "x"}});
  CHECK(metadata == std::map<std::string, std::string>{{"format", "pt"},
                                                       {"author", "x"},
                                                       {"regroup.version", std::string(kVersion)},
                                                       {"regroup.architecture", "llamaForCausalLM"},
                                                       {"regroup.query_heads", "4"},
                                                       {"regroup.head_dim", "2"},
                                                       {"regroup.source_kv_heads", "4"},
                                                       {"regroup.kv_heads", "2"},
                                                       {"regroup.pool", "mean"},
                                                       {"regroup.grouping", "contiguous"}});
}

}  // namespace
}  // namespace regroup

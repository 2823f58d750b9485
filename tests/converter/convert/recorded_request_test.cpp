// The record of a conversion, read back: correct, damaged, or of another source or version.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "converter/convert/verify_conversion.h"
#include "formats/model/record_words.h"
#include "formats/version.h"
#include "tests/converter/convert/converted.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

TEST_CASE("a result is verified only with the source whose fingerprint it records", "[converter]") {
  const Converted converted;
  const std::string source = fingerprint_of(open_model(converted.source));
  CHECK(converted.record().at("source_fingerprint") == source);
  const auto metadata = open_checkpoint(converted.result).metadata();
  CHECK(metadata.at("regroup.source_fingerprint") == Json(source).dump());
  const fs::path config = converted.source / "config.json";
  put_file(config, Json::parse(bytes_of_file(config)).dump(7));
  CHECK(fingerprint_of(open_model(converted.source)) != source);
  const Verification found = verified(converted.source, converted.result);
  REQUIRE(found.settings.size() == 1);
  CHECK(found.settings[0].path == "regroup.source_fingerprint");
  CHECK(found.settings[0].after == Json(source));
  CHECK(found.remarks.size() == 1);
}

TEST_CASE("a changed or missing source fingerprint is reported", "[converter]") {
  const Converted converted;
  converted.change_config([](Json& config) {
    std::string fingerprint = config["regroup"]["source_fingerprint"];
    fingerprint[3] = fingerprint[3] == '0' ? '1' : '0';
    config["regroup"]["source_fingerprint"] = fingerprint;
  });
  CHECK(converted.wrong_settings() ==
        Names{"regroup.source_fingerprint", "__metadata__.regroup.source_fingerprint"});
  converted.change_config([](Json& config) { config["regroup"].erase("source_fingerprint"); });
  CHECK(converted.wrong_settings() == Names{"__metadata__.regroup.source_fingerprint"});
  CHECK(verified(converted.source, converted.result).remarks.size() == 1);
}

TEST_CASE("the recorded version must be consistent and not newer than regroup", "[converter]") {
  const Converted converted;
  const auto with = [&](const Json& version) {
    converted.change_config([&](Json& config) { config["regroup"]["version"] = version; });
  };
  with("0.0.9");
  CHECK(converted.wrong_settings() == Names{"__metadata__.regroup.version"});
  std::string weights = bytes_of_file(converted.weights);
  const std::string now = R"("regroup.version":")" + std::string(kVersion) + '"';
  REQUIRE(weights.find(now) != std::string::npos);
  put_file(converted.weights,
           weights.replace(weights.find(now), now.size(), R"("regroup.version":"0.0.9")"));
  const Verification earlier = verified(converted.source, converted.result);
  CHECK(earlier.passed());
  REQUIRE(earlier.remarks.size() == 1);
  CHECK(earlier.remarks[0].find("written by regroup 0.0.9") != std::string::npos);
  const auto refusal = [&] {
    return refusal_of([&] { verified(converted.source, converted.result); });
  };
  with("12.0.0");
  CHECK_THAT(refusal(), is_wrong_usage("written by regroup 12.0.0", "that version or a later"));
  for (const Json& version :
       {Json("0.1"), Json("0.1.0x"), Json("v0.1.0"), Json("0.-1.0"), Json(1), Json(nullptr)}) {
    with(version);
    CAPTURE(version.dump());
    CHECK_THAT(refusal(), is_bad_input("records version"));
  }
}

TEST_CASE("a record with values of wrong types is reported as damaged", "[converter]") {
  const auto [key, value] = GENERATE(table<const char*, Json>({{"pool", 7},
                                                               {"grouping", Json::array()},
                                                               {"pool_seed", "x"},
                                                               {"dtype", 3},
                                                               {"dtype", "F31"},
                                                               {"kv_heads", "4"},
                                                               {"layers", 3},
                                                               {"refit", Json::array({1})},
                                                               {"calibration", 5},
                                                               {"checksums", {{"a", 1}}},
                                                               {"held_out", "x"}}));
  CAPTURE(key);
  const Converted converted;
  converted.change_config(
      [&, name = key, fact = value](Json& config) { config["regroup"][name] = fact; });
  CHECK_THAT(refusal_of([&] { verified(converted.source, converted.result); }),
             is_bad_input("record"));
}

TEST_CASE(
    "a quantised file and its safetensors result are verified with and without a recorded dtype",
    "[converter]") {
  const auto dtype = GENERATE(DType::kF32, DType::kBF16);
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  convert(golden("gguf/llama.gguf"), result,
          {.kv_heads = {1}, .container = Container::kSafetensors, .dtype = dtype});
  CHECK(verified(golden("gguf/llama.gguf"), result).passed());
  Json config = Json::parse(bytes_of_file(result / "config.json"));
  CHECK(config["regroup"]["dtype"] == name_of(dtype));
  config["regroup"].erase("dtype");
  put_file(result / "config.json", config.dump(2));
  const Verification earlier = verified(golden("gguf/llama.gguf"), result);
  CHECK(earlier.tensors.empty());
}

TEST_CASE("a record that is not text is reported as damaged", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path result = directory / "result.gguf";
  convert(golden("gguf/llama.gguf"), result, {.kv_heads = {1}});
  std::string bytes = bytes_of_file(result);
  const std::size_t at = bytes.find(kVersion, bytes.find("regroup.version"));
  REQUIRE(at != std::string::npos);
  bytes[at] = '\xff';
  put_file(result, bytes);
  CHECK_THAT(refusal_of([&] { verified(golden("gguf/llama.gguf"), result); }),
             is_bad_input("records version"));
}

TEST_CASE("a second conversion of a GGUF file replaces the record of the first", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path first = directory / "first.gguf", second = directory / "second.gguf";
  convert(golden("llama_mha"), first,
          {.kv_heads = {6}, .pooling = {PoolMethod::kRandom, 7}, .container = Container::kGguf});
  convert(first, second, {.kv_heads = {3}});
  CHECK(record_of(open_model(first)).pool_seed.recorded());
  CHECK_FALSE(record_of(open_model(second)).pool_seed.recorded());
  CHECK(verified(first, second).passed());
}

Error refusal(const fs::path& source, const fs::path& result) {
  return refusal_of([&] { verified(source, result); });
}

TEST_CASE("recorded steps that cannot be recomputed are named in one line", "[converter]") {
  const Converted converted;
  CHECK_THAT(refusal(converted.source, converted.source), is_wrong_usage("records no conversion"));
  put_model(converted.directory / "other", tiny_bloom({.query_heads = 6, .kv_heads = 6}));
  CHECK_THAT(refusal(converted.directory / "other", converted.result),
             is_wrong_usage("was made from a model whose kv heads are 12"));
  const auto with = [&](const char* key, const Json& value) {
    converted.change_config([&](Json& config) { config["regroup"][key] = value; });
    return refusal(converted.source, converted.result);
  };
  CHECK_THAT(with("pool", "median"), is_wrong_usage("median"));
  CHECK_THAT(with("pool", "aligned"), is_wrong_usage("aligned", "cannot be verified"));
  CHECK_THAT(with("pool", "select"), is_wrong_usage("select", "cannot be verified"));
  CHECK_THAT(with("pool", "median"), is_wrong_usage("median"));
  CHECK_THAT(with("calibration_tokens", 4096), is_wrong_usage("median"));
  CHECK_THAT(with("pool", "lowrank"), is_wrong_usage("--calibration FILE is needed"));
  CHECK_THAT(with("grouping", "alphabetic"), is_wrong_usage("alphabetic"));
  CHECK_THAT(with("stretched", 2), is_wrong_usage("\"stretched\""));
}

TEST_CASE("a recorded order that does not match the source's heads is refused", "[converter]") {
  const Json heads{11, 10, 9, 0, 1, 2, 8, 4, 7, 6, 3, 5};
  const auto with = [](Json order) {
    const Converted converted(reordered());
    converted.change_config(
        [&](Json& config) { config["regroup"]["query_order"] = std::move(order); });
    return refusal(converted.source, converted.result);
  };
  CHECK_THAT(with(Json::array({0})), is_bad_input("query_order", "2 decoder layers"));
  CHECK_THAT(with({{"decoder", {heads, heads}}}), is_bad_input("2 decoder layers"));
  CHECK_THAT(with(Json::array({heads, Json::array({0, 1})})), is_bad_input("layer 1", "12 query"));
  Json twice = heads, far = heads, text = heads;
  twice[0] = 0;
  far[0] = 12;
  text[0] = "11";
  for (const Json& wrong : {twice, far, text}) {
    CHECK_THAT(with(Json::array({wrong, heads})), is_bad_input("layer 0", "12 query heads"));
  }
  const TemporaryDirectory directory;  // here three query heads read one kv head
  convert(golden("llama"), directory / "result", {.kv_heads = {2}});
  Json config = Json::parse(bytes_of_file(directory / "result" / "config.json"));
  config["regroup"]["query_order"] = Json::array({heads, heads});
  put_file(directory / "result" / "config.json", config.dump());
  CHECK_THAT(refusal(golden("llama"), directory / "result"), is_bad_input("together"));
}

TEST_CASE("recorded kv heads that no attention has are refused", "[converter]") {
  const auto [heads, word] = GENERATE(table<Json, const char*>({{0, "from 1 to 12"},
                                                                {{4, 0}, "--kv-heads 0"},
                                                                {13, "are 13"},
                                                                {9223372036854775808U, "92233"},
                                                                {~0ULL, "18446744073709551615"}}));
  const Converted converted;
  converted.change_config(
      [&, value = heads](Json& config) { config["regroup"]["kv_heads"] = value; });
  const Error fault = refusal(converted.source, converted.result);
  CHECK_THAT(std::string(fault.what()), Catch::Matchers::ContainsSubstring(word));
}

// Looks at a result whose record may hold anything: in one line it is refused, or it is compared.
void check_is_read(const fs::path& source, const fs::path& result) {
  try {
    const Model model = open_model(result);
    for (const Json& step : record_of(model).steps()) {
      text_of_step(step);
    }
    warnings_in(record_of(model));
    verified(source, result);
  } catch (const Error& fault) {
    CHECK(std::string_view(fault.what()).find('\n') == std::string_view::npos);
  }
}

TEST_CASE("no value in a record does more than a refusal or a difference", "[converter]") {
  const TemporaryDirectory directory;
  const auto [name, source, request] = GENERATE(table<const char*, const char*, ConversionRequest>(
      {{"records/fitted", "llama_bf16", {}},
       {"records/trained", "llama_bf16", {}},
       {"", "bloom_12", reordered()},
       {"", "t5", {.kv_heads = {3}}},
       {"", "llama_mha", {.kv_heads = {3}, .target = "expanded", .dtype = DType::kBF16}}}));
  const fs::path result = directory / "result";
  if (*name != '\0') {
    fs::copy(golden(name), result);
  } else {
    convert(golden(source), result, request);
  }
  const Json config = Json::parse(bytes_of_file(result / "config.json"));
  const Json values{0,
                    -1,
                    9223372036854775808U,
                    ~0ULL,
                    1e300,
                    0.5,
                    "",
                    nullptr,
                    Json::array(),
                    Json::array({0}),
                    Json::object(),
                    true};
  const auto change_all = [&, source = source](const Json::json_pointer& at) {
    for (const Json& value : values) {
      Json changed = config;
      changed[at] = value;
      CAPTURE(at.to_string(), value.dump());
      put_file(result / "config.json", changed.dump());
      check_is_read(golden(source), result);
    }
  };
  for (const auto& [key, value] : config["regroup"].items()) {
    change_all(Json::json_pointer("/regroup/" + key));
    const Json members = value.is_structured() ? value.flatten() : Json::object();
    for (const auto& [inner, unused] : members.items()) {
      change_all(Json::json_pointer("/regroup/" + key + inner));
    }
  }
}

TEST_CASE("uptrained results are not verified as conversions", "[converter]") {
  const Converted converted;
  converted.change_config([](Json& config) { config["regroup"]["uptrain"] = {{"steps", 3}}; });
  CHECK_THAT(refusal(converted.source, converted.result), is_wrong_usage("was trained"));
}

}  // namespace
}  // namespace regroup

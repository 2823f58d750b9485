// Results checked against their recipes: right ones pass, every kind of wrong one is caught.
#include "converter/verify/verify_conversion.h"

#include <algorithm>
#include <functional>
#include <set>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "converter/verify/recorded_request.h"
#include "formats/version.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using enum AttentionRole;

Verification verified(const fs::path& source_path, const fs::path& result_path) {
  const Model source = open_model(source_path);
  const Model result = open_model(result_path);
  const ConversionPlan plan = plan_conversion(source, recorded_request(source, result, nullptr));
  Verification found = verify_conversion(plan, source, result, [](auto, auto) {});
  for (TensorDifference& difference : found.tensors) {  // the models they point into end here
    difference.after = nullptr;
  }
  return found;
}

using Heads = std::vector<std::int64_t>;

// To 4 of 12 heads, in other groups and places than neighbours have in every layer.
ConversionRequest reordered() {
  ConversionRequest request{.kv_heads = {4}, .grouping = "similar"};
  request.order.set(kSelf, 0, {4, 1, 11, 0, 3, 2, 5, 10, 7, 8, 9, 6});
  request.order.set(kSelf, 1, {11, 10, 9, 0, 1, 2, 8, 4, 7, 6, 3, 5});
  return request;
}

// A conversion of BLOOM, to be damaged.
struct Converted {
  TemporaryDirectory directory;
  fs::path source = put_model(directory / "source", tiny_bloom());
  fs::path result = directory / "result";
  fs::path weights = result / "model.safetensors";

  explicit Converted(const ConversionRequest& request = {.kv_heads = {4}}) {
    convert(source, result, request);
  }

  // Changes the bytes of one tensor.
  void damage(const std::string& tensor, const std::function<void(std::string&)>& change) const {
    const Checkpoint checkpoint = open_checkpoint(result);
    const TensorInfo& info = checkpoint.at(tensor);
    std::string file = bytes_of_file(weights);
    std::string bytes = file.substr(info.begin, info.end - info.begin);
    change(bytes);
    put_file(weights, file.replace(info.begin, bytes.size(), bytes));
  }

  void change_config(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(bytes_of_file(result / "config.json"));
    change(config);
    put_file(result / "config.json", config.dump(2));
  }

  Json record() const { return Json::parse(bytes_of_file(result / "config.json")).at("regroup"); }

  std::vector<std::string> wrong_tensors() const {
    std::vector<std::string> names;
    for (const TensorDifference& difference : verified(source, result).tensors) {
      names.push_back(difference.name);
    }
    return names;
  }

  std::vector<std::string> wrong_settings() const {
    std::vector<std::string> paths;
    for (const JsonDifference& difference : verified(source, result).settings) {
      paths.push_back(difference.path);
    }
    return paths;
  }
};

using Names = std::vector<std::string>;
constexpr const char* kFused = "transformer.h.1.self_attention.query_key_value.weight";

// With neighbours grouped and with heads that moved.
Converted some_conversion() {
  return Converted(GENERATE(ConversionRequest{.kv_heads = {4}}, reordered()));
}

TEST_CASE("a conversion as it was written is verified", "[converter]") {
  const Converted converted = some_conversion();
  const Verification found = verified(converted.source, converted.result);
  CHECK(found.passed());
  const bool moved = converted.record().at("grouping") == "similar";
  CHECK(found.computed == (moved ? 6 : 4));  // weight and bias of two layers, and what reads them
  CHECK(found.copied + found.computed == open_checkpoint(converted.source).tensors().size());
}

TEST_CASE("a conversion says which source it was made of, and no other one verifies it",
          "[converter]") {
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

TEST_CASE("a source fingerprint that was changed or is missing is told", "[converter]") {
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

TEST_CASE(
    "the version that wrote a result is one of regroup's, the same everywhere and no later one",
    "[converter]") {
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

TEST_CASE("a record with values of other types is damaged", "[converter]") {
  const auto [key, value] = GENERATE(table<const char*, Json>({{"pool", 7},
                                                               {"grouping", Json::array()},
                                                               {"pool_seed", "x"},
                                                               {"dtype", 3},
                                                               {"dtype", "F31"}}));
  CAPTURE(key);
  const Converted converted;
  converted.change_config([&](Json& config) { config["regroup"][key] = value; });
  CHECK_THAT(refusal_of([&] { verified(converted.source, converted.result); }),
             is_bad_input("record"));
}

TEST_CASE(
    "a quantised file and its safetensors result are verified, with and without a recorded "
    "dtype",
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

TEST_CASE("a second conversion of a GGUF file leaves no record of the first", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path first = directory / "first.gguf", second = directory / "second.gguf";
  convert(golden("llama_mha"), first,
          {.kv_heads = {6}, .pooling = {PoolMethod::kRandom, 7}, .container = Container::kGguf});
  convert(first, second, {.kv_heads = {3}});
  CHECK(recorded_conversion(open_model(first)).contains("pool_seed"));
  CHECK_FALSE(recorded_conversion(open_model(second)).contains("pool_seed"));
  CHECK(verified(first, second).passed());
}

TEST_CASE("one flipped bit is caught, in a copied tensor and in a pooled one", "[converter]") {
  const auto* name = GENERATE("transformer.h.0.mlp.dense_4h_to_h.weight", kFused);
  const Converted converted = some_conversion();
  converted.damage(name, [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  CHECK(converted.wrong_tensors() == Names{name});
  CHECK(converted.wrong_settings().empty());
}

TEST_CASE("swapped groups are caught", "[converter]") {
  const Converted converted = some_conversion();
  converted.damage(kFused, [](std::string& bytes) {  // four groups of equal size, one after another
    const std::size_t group = bytes.size() / 4;
    bytes = bytes.substr(group, group) + bytes.substr(0, group) + bytes.substr(2 * group);
  });
  const Verification found = verified(converted.source, converted.result);
  REQUIRE(found.tensors.size() == 1);
  CHECK(found.tensors[0].name == kFused);
  CHECK(found.tensors[0].values->largest > 0.1);
}

TEST_CASE("wrong slopes are caught", "[converter]") {
  const Converted converted = some_conversion();
  const bool by_layer = converted.record().at("alibi").at("slopes").front().is_array();
  converted.change_config([&](Json& config) {
    Json& slopes = config["regroup"]["alibi"]["slopes"];
    (by_layer ? slopes[1] : slopes)[3] = 0.25000001;
  });
  CHECK(converted.wrong_settings() ==
        Names{by_layer ? "regroup.alibi.slopes[1][3]" : "regroup.alibi.slopes[3]"});
}

TEST_CASE("a wrong config is caught, whatever the order of its keys", "[converter]") {
  const Converted converted = some_conversion();
  converted.change_config([](Json& config) {
    const Json layers = config["n_layer"];
    config.erase("n_layer");
    config["n_layer"] = layers;  // now last
  });
  CHECK(converted.wrong_settings().empty());
  converted.change_config([](Json& config) { config["layer_norm_epsilon"] = 1e-6; });
  CHECK(converted.wrong_settings() == Names{"layer_norm_epsilon"});
}

TEST_CASE("a tensor too many, too few or of another type is caught", "[converter]") {
  const Converted converted;
  TinyModel model = tiny_bloom();  // only its type is of use here
  model.tensors.clear();
  const Checkpoint result = open_checkpoint(converted.result);
  for (const TensorInfo& tensor : result.tensors()) {
    model.tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, bytes_of(result, tensor.name)});
  }
  BuiltTensor& norm = model.tensor("transformer.ln_f.bias");
  norm = tensor_of(norm.name, DType::kF64, norm.shape, values_of(norm));
  model.remove("transformer.ln_f.weight");
  model.tensors.push_back(varied_tensor("stranger", DType::kF32, {1}));
  put_checkpoint(converted.weights, model.tensors, result.metadata());
  const Names wrong = converted.wrong_tensors();
  CHECK(std::set<std::string>(wrong.begin(), wrong.end()) ==
        std::set<std::string>{"transformer.ln_f.bias", "transformer.ln_f.weight", "stranger"});
}

TEST_CASE("what any kind of conversion writes is verified", "[converter]") {
  const auto [name, request] = GENERATE(table<const char*, ConversionRequest>(
      {{"gpt2", {.kv_heads = {3}}},
       {"llama_mha", {.kv_heads = {2, 1}}},
       {"llama_mha", {.kv_heads = {2}, .pooling = {PoolMethod::kFirst}}},
       {"llama_mha", {.kv_heads = {2}, .pooling = {PoolMethod::kRandom, 7}}},
       {"llama_mha", {.kv_heads = {3}, .dtype = DType::kBF16}},
       {"llama_mha", {.kv_heads = {3}, .target = "expanded"}},
       {"llama_mha", {.kv_heads = {3}, .container = Container::kGguf}},
       {"llama_mha", {.kv_heads = {3}, .container = Container::kTorch}},
       {"llama_sharded", {.kv_heads = {2}, .max_shard_bytes = 9000}},
       {"gpt2", {.kv_heads = {2}, .container = Container::kGguf}},
       {"gpt_neox", {.kv_heads = {1}, .target = "auto"}},
       {"llama_mha", {.kv_heads = {3}, .positions = PositionChange::kAlibi}},
       {"t5", {.kv_heads = {3}}},
       {"t5", {.kv_heads = {4}, .roles = {kCross}}},
       {"t5", {.kv_heads = {4}, .roles = {kSelf, kCross, kEncoder}}},
       {"gguf/llama.gguf", {.kv_heads = {1}}},
       {"llama_torch", {.kv_heads = {1}}}}));
  CAPTURE(name, request.kv_heads, request.target);
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  convert(golden(name), result, request);
  const Verification found = verified(golden(name), result);
  for (const TensorDifference& difference : found.tensors) {
    FAIL_CHECK(difference.name);
  }
  for (const JsonDifference& difference : found.settings) {
    FAIL_CHECK(difference.path);
  }
  CHECK(found.computed > 0);
}

// Orders of heads for the attentions of a model, in step where they have to be.
HeadOrder reversed(const ModelSpec& spec) {
  HeadOrder order;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      Heads heads;
      for (std::int64_t h = spec.kv_heads_of(role)[i]; h-- > 0;) {
        heads.push_back(h);
      }
      order.set(role, i, std::move(heads));
    }
  }
  return order;
}

TEST_CASE("reordered results of any family and container are verified", "[converter]") {
  const auto [name, request] = GENERATE(table<const char*, ConversionRequest>(
      {{"llama_mha", {.kv_heads = {3}}},
       {"llama", {.kv_heads = {2}}},  // three query heads move with each kv head
       {"llama_mha", {.kv_heads = {3}, .target = "expanded"}},
       {"llama_mha", {.kv_heads = {3}, .container = Container::kGguf}},
       {"llama_mha", {.kv_heads = {2}, .pooling = {PoolMethod::kRandom, 7}}},
       {"gpt2", {.kv_heads = {3}}},
       {"gpt2", {.kv_heads = {2}, .container = Container::kGguf}},
       {"gpt_neox", {.kv_heads = {1}, .target = "auto"}},
       {"nemotron_nas", {.kv_heads = {}}},
       {"t5", {.kv_heads = {3}}},
       {"t5", {.kv_heads = {4}, .roles = {kSelf, kCross, kEncoder}}},
       {"umt5", {.kv_heads = {4}, .roles = {kCross}}}}));
  CAPTURE(name, request.kv_heads, request.target);
  ConversionRequest moved = request;
  moved.grouping = "similar";
  moved.order = reversed(open_model(golden(name)).spec);
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  convert(golden(name), result, moved);
  const Model source = open_model(golden(name)), model = open_model(result);
  CHECK(recorded_request(source, model, nullptr).order.orders() == moved.order.orders());
  CHECK(verified(golden(name), result).passed());
}

TEST_CASE("another order than that of the heads is caught", "[converter]") {
  const Converted converted(reordered());
  converted.change_config([](Json& config) {
    Json& order = config["regroup"]["query_order"][1];
    std::swap(order[0], order[3]);
  });
  const Names wrong = converted.wrong_tensors();
  CHECK(std::set<std::string>(wrong.begin(), wrong.end()) ==
        std::set<std::string>{kFused, "transformer.h.1.self_attention.query_key_value.bias",
                              "transformer.h.1.self_attention.dense.weight"});
  const Names settings = converted.wrong_settings();  // the slopes, and what the weight file says
  CHECK(std::count(settings.begin(), settings.end(), "regroup.alibi.slopes[1][0]") == 1);
  CHECK(std::count(settings.begin(), settings.end(), "__metadata__.regroup.query_order") == 1);
}

Error refusal(const fs::path& source, const fs::path& result) {
  return refusal_of([&] { verified(source, result); });
}

TEST_CASE("what cannot be computed again is said in one line", "[converter]") {
  const Converted converted;
  CHECK_THAT(refusal(converted.source, converted.source), is_wrong_usage("records no conversion"));
  put_model(converted.directory / "other", tiny_bloom({.query_heads = 6, .kv_heads = 6}));
  CHECK_THAT(refusal(converted.directory / "other", converted.result),
             is_wrong_usage("made of a model with 12 kv heads"));
  const auto with = [&](const char* key, const Json& value) {
    converted.change_config([&](Json& config) { config["regroup"][key] = value; });
    return refusal(converted.source, converted.result);
  };
  CHECK_THAT(with("pool", "median"), is_wrong_usage("median"));
  CHECK_THAT(with("calibration_tokens", 4096), is_wrong_usage("median"));
  CHECK_THAT(with("pool", "select"), is_wrong_usage("--calibration FILE is needed"));
  CHECK_THAT(with("grouping", "alphabetic"), is_wrong_usage("alphabetic"));
  CHECK_THAT(with("stretched", 2), is_wrong_usage("\"stretched\""));
}

TEST_CASE("a recorded order that is none of the source's heads is refused", "[converter]") {
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
  const TemporaryDirectory directory;  // where three query heads read one kv head
  convert(golden("llama"), directory / "result", {.kv_heads = {2}});
  Json config = Json::parse(bytes_of_file(directory / "result" / "config.json"));
  config["regroup"]["query_order"] = Json::array({heads, heads});
  put_file(directory / "result" / "config.json", config.dump());
  CHECK_THAT(refusal(golden("llama"), directory / "result"), is_bad_input("side by side"));
}

TEST_CASE("what was trained is no conversion any more", "[converter]") {
  const Converted converted;
  converted.change_config([](Json& config) { config["regroup"]["uptrain"] = {{"steps", 3}}; });
  CHECK_THAT(refusal(converted.source, converted.result), is_wrong_usage("was trained"));
}

}  // namespace
}  // namespace regroup

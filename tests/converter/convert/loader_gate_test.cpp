// The model_type of results with reordered ALiBi heads, and where such results are refused.
#include <algorithm>

#include <catch2/catch_test_macros.hpp>

#include "converter/convert/conversion_plan.h"
#include "converter/convert/loader_choice.h"
#include "converter/convert/verify_conversion.h"
#include "formats/families/loader_code.h"
#include "formats/model/model_summary.h"
#include "formats/spec/alibi.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// The six heads of the first layer in another order.
HeadOrder moved_order() {
  HeadOrder order;
  order.set(AttentionRole::kSelf, 0, {5, 3, 1, 0, 2, 4});
  return order;
}

ConversionRequest moved(ConversionRequest request) {
  request.grouping = "similar";
  request.order = moved_order();
  return request;
}

Error refusal_of_conversion(const fs::path& source, const ConversionRequest& request) {
  return refusal_of([&] { plan_conversion(open_model(source), request); });
}

std::vector<std::string> misread(const fs::path& path) {
  const Model model = open_model(path);
  return misread_by_loaders(model.spec, model.config);
}

Verification verification_of(const fs::path& source, const fs::path& result) {
  const Model from = open_model(source), to = open_model(result);
  return verify_conversion(plan_conversion(from, recorded_request(from, to, nullptr)), from, to,
                           {});
}

constexpr const char* kWithAlibi[] = {"bloom", "mpt", "falcon_rw"};

TEST_CASE("reordered heads with slopes are written under a model_type that stock loaders refuse",
          "[converter]") {
  for (const char* name : kWithAlibi) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const std::string own =
        std::string("regroup_alibi_") + (std::string(name) == "falcon_rw" ? "falcon" : name);
    convert(golden(name), directory / "similar", moved({.kv_heads = {2}}));
    CHECK(open_model(directory / "similar").config["model_type"] == own);
    CHECK(verification_of(golden(name), directory / "similar").passed());
    convert(directory / "similar", directory / "mqa", {.kv_heads = {1}});
    const Model mqa = open_model(directory / "mqa");
    CHECK(mqa.config["model_type"] == own);
    CHECK(mqa.spec.kv_heads == std::vector<std::int64_t>(mqa.spec.layers.size(), 1));
    CHECK(verification_of(directory / "similar", directory / "mqa").passed());
    CHECK(alibi_slopes_per_layer(mqa.spec)[0][0] == alibi_slopes(6)[5]);
    CHECK_FALSE(derived_otherwise(mqa.spec).empty());
    for (const char* result : {"similar", "mqa"}) {
      CHECK(misread(directory / result).empty());
      // Targets and containers for stock loaders are refused.
      const auto refused = [&](const ConversionRequest& request) {
        return refusal_of_conversion(directory / result, request);
      };
      CHECK_THAT(refused({.target = "expanded"}), is_wrong_usage("ALiBi", "contiguous"));
      CHECK_THAT(refused({.container = Container::kGguf}), is_wrong_usage());
      CHECK_THAT(refused({.target = "auto"}), is_wrong_usage());
      CHECK_THAT(refused({.target = "falcon"}), is_wrong_usage());
      CHECK_THAT(refused({.target = "bloom"}), is_wrong_usage());
    }
  }
}

TEST_CASE("reordered heads with slopes are refused in one step where stock loaders would read them",
          "[converter]") {
  for (const char* name : kWithAlibi) {
    CAPTURE(name);
    const auto refused = [&](const ConversionRequest& request) {
      return refusal_of_conversion(golden(name), moved(request));
    };
    // With the same number of kv heads, stock loaders would read the result.
    CHECK_THAT(refused({}), is_wrong_usage("ALiBi", "contiguous"));
    CHECK_THAT(refused({.kv_heads = {2}, .target = "expanded"}), is_wrong_usage("ALiBi"));
    CHECK_THAT(refused({.kv_heads = {2}, .container = Container::kGguf}), is_wrong_usage());
  }
  CHECK_THAT(refusal_of_conversion(golden("falcon_rw"), moved({.kv_heads = {1}})),
             is_wrong_usage("ALiBi"));  // multi_query
  const ConversionPlan plan =
      plan_conversion(open_model(golden("bloom")), moved({.kv_heads = {2}}));
  REQUIRE(plan.notes.size() == 2);  // but no note about grouped heads in stock loaders
  CHECK(plan.notes[0].find("ALiBi slopes") != std::string::npos);
  CHECK(plan.notes[1].find("trust_remote_code=True") != std::string::npos);
}

// As written by old versions: reordered slopes under the family's own model_type.
TinyModel misnamed(const TinySizes& sizes) {
  std::vector<double> slopes = alibi_slopes(sizes.query_heads);
  std::rotate(slopes.begin(), slopes.begin() + 1, slopes.end());
  return tiny_bloom(sizes).set(
      "regroup", Json({{"source_kv_heads", 6}, {"alibi", {{"slopes", slopes}}}}).dump());
}

TEST_CASE("a converted model does not keep a model_type that misleads stock loaders",
          "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", misnamed({.query_heads = 6, .kv_heads = 6}));
  CHECK(misread(directory / "source").size() == 1);
  CHECK_THAT(refusal_of_conversion(directory / "source", {}), is_wrong_usage("ALiBi"));
  CHECK_THAT(refusal_of_conversion(directory / "source", {.container = Container::kTorch}),
             is_wrong_usage("ALiBi"));
  convert(directory / "source", directory / "grouped", {.kv_heads = {2}});
  CHECK(open_model(directory / "grouped").config["model_type"] == "regroup_alibi_bloom");
  CHECK(misread(directory / "grouped").empty());
}

TEST_CASE("a result that stock loaders misread is not verification_of", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("bloom"), directory / "expanded", {.kv_heads = {2}, .target = "expanded"});
  CHECK(verification_of(golden("bloom"), directory / "expanded").passed());
  const fs::path config = directory / "expanded" / "config.json";
  Json changed = Json::parse(bytes_of_file(config));
  Json& slopes = changed["regroup"]["alibi"]["slopes"];
  std::swap(slopes[0], slopes[1]);
  put_file(config, changed.dump());
  const Error found = refusal_of([&] { verification_of(golden("bloom"), directory / "expanded"); });
  CHECK(found.kind() == ErrorKind::kDifference);
  CHECK(std::string(found.what()).find("ALiBi slopes") != std::string::npos);
  CHECK(summarize_model(directory / "expanded", open_checkpoint(directory / "expanded"))
            .disagreements.size() == 1);
}

TEST_CASE("heads with slopes in a GGUF file are reordered only if the result is not GGUF",
          "[converter]") {
  for (const char* name : {"bloom", "mpt"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const fs::path file = directory / "model.gguf";
    convert(golden(name), file, {.container = Container::kGguf});
    CHECK_THAT(refusal_of_conversion(file, moved({.kv_heads = {2}})), is_wrong_usage("ALiBi"));
    convert(file, directory / "similar",
            moved({.kv_heads = {2}, .container = Container::kSafetensors}));
    CHECK(open_model(directory / "similar").config["model_type"] ==
          std::string("regroup_alibi_") + name);
    CHECK(misread(directory / "similar").empty());
    // The reference that verification compares with is never written.
    plan_reference(open_model(file), moved({.kv_heads = {2}}));
  }
}

TEST_CASE("an encoder with reordered ALiBi heads gets regroup's model_type too", "[converter]") {
  TinyModel bert = golden_model("bert").set("position_embedding_type", "\"alibi\"");
  bert.set("auto_map", R"({"AutoConfig": "jinaai/jina-bert-implementation--c.C"})");
  bert.remove("bert.embeddings.position_embeddings.weight");
  const TemporaryDirectory directory;
  put_model(directory / "source", bert);
  HeadOrder order;
  order.set(AttentionRole::kSelf, 1, {11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
  convert(directory / "source", directory / "similar",
          {.kv_heads = {3}, .grouping = "similar", .order = order});
  const Model similar = open_model(directory / "similar");
  CHECK(similar.config["model_type"] == "regroup_alibi_bert");
  CHECK(similar.config["auto_map"] == Json::object());
  CHECK(alibi_slopes_per_layer(similar.spec)[1][0] == alibi_slopes(12)[11]);
  convert(directory / "source", directory / "plain", {.kv_heads = {3}});
  CHECK(open_model(directory / "plain").config["model_type"] == "bert");
}

}  // namespace
}  // namespace regroup

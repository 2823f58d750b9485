// Results of the version that recorded no history are read and verified, and their successors
// record what went before.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/model/conversion_record.h"
#include "formats/model/record_words.h"
#include "tests/child_program.h"
#include "tests/converter/convert/converted.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

fs::path earlier(const char* name) { return golden(std::string("records/") + name); }

Json config_in(const fs::path& directory) {
  return Json::parse(bytes_of_file(directory / "config.json"));
}

// The texts of the steps that a model's record lists.
std::vector<std::string> history_of(const Model& model) {
  std::vector<std::string> steps;
  for (const Json& step : record_of(model).earlier_steps()) {
    steps.push_back(text_of_step(step));
  }
  return steps;
}

const std::string kMean = "converted from 12 kv heads to 4 (mean, contiguous)";
const std::string kTrained = "trained in 3 steps on 192 tokens, held-out loss 6.2569 to 6.1814";

}  // namespace

TEST_CASE("results of the version without a history are verified", "[converter]") {
  const fs::path source = golden("llama_bf16");
  CHECK(verified(source, earlier("mean4")).passed());
  CHECK(verified(source, earlier("fitted")).passed());
  CHECK(verified(source, earlier("mean4.gguf")).passed());
  const Verification twice = verified(earlier("mean4"), earlier("twice"));
  CHECK(twice.passed());
  REQUIRE(twice.remarks.size() == 1);
  CHECK_THAT(twice.remarks.front(), ContainsSubstring(kMean));
}

TEST_CASE("results of pooling methods of earlier versions are inspected and not verified",
          "[converter]") {
  const TemporaryDirectory directory;
  for (const std::string method : {"aligned", "select"}) {
    const fs::path result = directory / method;
    fs::copy(earlier("mean4"), result);
    Json config = config_in(result);
    config["regroup"]["pool"] = method;
    put_file(result / "config.json", config.dump());
    const ProgramResult shown = run_program({"inspect", result.string()});
    CHECK(shown.exit_code == 0);
    CHECK_THAT(shown.out, ContainsSubstring(method));
    const ProgramResult refused =
        run_program({"verify", golden("llama_bf16").string(), result.string()});
    CHECK(refused.exit_code == kExitUsage);
    CHECK(refused.one_line_of_error());
    CHECK_THAT(refused.err, ContainsSubstring("method " + method + " of an earlier version"));
    convert(result, directory / (method + "2"), {.kv_heads = {2}});
    CHECK(history_of(open_model(directory / (method + "2"))) ==
          std::vector{"converted from 12 kv heads to 4 (" + method + ", contiguous)"});
  }
}

TEST_CASE("conversions of earlier results record what went before", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path trained = directory / "trained", result = directory / "result",
                 again = directory / "again", file = directory / "file.gguf";
  fs::copy(earlier("mean4"), trained);
  put_file(trained / "config.json", bytes_of_file(earlier("trained") / "config.json"));
  convert(trained, result, {.kv_heads = {2}});
  CHECK(history_of(open_model(result)) == std::vector{kMean, kTrained});
  CHECK(config_in(result)["regroup"]["pool"] == "mean");
  CHECK_FALSE(config_in(result)["regroup"].contains("uptrain"));
  CHECK_THAT(bytes_of_file(result / "README.md"),
             ContainsSubstring("## History\n\n- " + kMean + " (regroup 0.1.0)\n- " + kTrained));
  const Verification found = verified(trained, result);
  CHECK(found.passed());
  REQUIRE(found.remarks.size() == 1);
  CHECK_THAT(found.remarks.front(), ContainsSubstring(kMean + "; then " + kTrained));
  convert(result, again, {.kv_heads = {1}});
  convert(again, file, {.container = Container::kGguf});
  CHECK(verified(result, again).passed());
  CHECK(verified(again, file).passed());
  const std::vector<std::string> all{kMean, kTrained,
                                     "converted from 4 kv heads to 2 (mean, contiguous)",
                                     "converted from 2 kv heads to 1 (mean, contiguous)"};
  CHECK(history_of(open_model(file)) == all);
  // And back, from the keys of the file.
  convert(file, directory / "back", {.container = Container::kSafetensors});
  CHECK(history_of(open_model(directory / "back")).size() == 5);
}

TEST_CASE("a history other than the source's is a difference", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  convert(earlier("mean4"), result, {.kv_heads = {2}});
  Json config = config_in(result);
  config["regroup"]["history"][0]["pool"] = "lowrank";
  put_file(result / "config.json", config.dump());
  const Verification found = verified(earlier("mean4"), result);
  REQUIRE_FALSE(found.settings.empty());
  CHECK(found.settings.back().path == "regroup.history");
}

}  // namespace regroup

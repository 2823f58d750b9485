// Which results carry code for transformers, and what becomes of code that the source has.
#include "converter/convert/loader_choice.h"

#include <catch2/catch_test_macros.hpp>

#include "converter/convert/verify_conversion.h"
#include "formats/families/loader_code.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShared = "regroup_heads.py";
constexpr const char* kBloom = "modeling_regroup_bloom.py";

Json config_of(const fs::path& directory) {
  return Json::parse(bytes_of_file(directory / "config.json"));
}

Verification verification_of_loader(const fs::path& source, const fs::path& result) {
  const Model from = open_model(source), to = open_model(result);
  return verify_conversion(plan_conversion(from, recorded_request(from, to, nullptr)), from, to,
                           {});
}

TEST_CASE("a result that no stock loader reads carries code and names it", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("bloom"), directory / "grouped", {.kv_heads = {2}});
  const Json config = config_of(directory / "grouped");
  CHECK(config["model_type"] == "bloom");
  CHECK(config["auto_map"]["AutoModelForCausalLM"] ==
        "modeling_regroup_bloom.RegroupBloomForCausalLM");
  for (const LoaderFile& file : loader_files()) {
    const bool written = file.name == kShared || file.name == kBloom;
    CHECK(fs::exists(directory / "grouped" / file.name) == written);
    if (written) {
      CHECK(bytes_of_file(directory / "grouped" / file.name) == file.text);
    }
  }
  CHECK(verification_of_loader(golden("bloom"), directory / "grouped").passed());
  put_file(directory / "grouped" / kBloom, "edited");
  CHECK_FALSE(verification_of_loader(golden("bloom"), directory / "grouped").passed());
  fs::remove(directory / "grouped" / kBloom);
  CHECK_FALSE(verification_of_loader(golden("bloom"), directory / "grouped").passed());
}

TEST_CASE("a result that stock loaders read carries no code", "[converter]") {
  const TemporaryDirectory directory;
  for (const auto& [fixture, kv_heads] :
       {std::pair{"llama_mha", 2}, {"falcon_rw", 1}, {"gpt_bigcode_mha", 1}, {"bloom", 6}}) {
    CAPTURE(fixture);
    const fs::path result = directory / fixture;
    convert(golden(fixture), result, {.kv_heads = {kv_heads}});
    CHECK_FALSE(config_of(result).contains("auto_map"));
    CHECK_FALSE(fs::exists(result / kShared));
    CHECK_THAT(refusal_of([&, name = fixture, heads = kv_heads] {
                 plan_conversion(open_model(golden(name)),
                                 {.kv_heads = {heads}, .loader = LoaderChoice::kTransformers});
               }),
               is_wrong_usage("--loader transformers", "no effect"));
  }
  const auto refused = [](ConversionRequest request) {
    request.loader = LoaderChoice::kTransformers;
    return refusal_of([&] { plan_conversion(open_model(golden("bloom")), request); });
  };
  CHECK_THAT(refused({.kv_heads = {2}, .target = "expanded"}), is_wrong_usage("no effect"));
  CHECK_THAT(refused({.kv_heads = {2}, .container = Container::kGguf}),
             is_wrong_usage("single file"));
}

TEST_CASE("without code, the result is as before and verified as such", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("bloom"), directory / "plain", {.kv_heads = {2}, .loader = LoaderChoice::kNone});
  CHECK_FALSE(config_of(directory / "plain").contains("auto_map"));
  CHECK_FALSE(fs::exists(directory / "plain" / kBloom));
  CHECK(verification_of_loader(golden("bloom"), directory / "plain").passed());
}

TEST_CASE("converting again replaces the code or removes it", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("gpt2"), directory / "grouped", {.kv_heads = {2}});
  put_file(directory / "grouped" / kShared, "edited");
  convert(directory / "grouped", directory / "again", {.kv_heads = {1}});
  CHECK(bytes_of_file(directory / "again" / kShared) != "edited");
  CHECK(config_of(directory / "again")["auto_map"].size() == 2);
  CHECK(verification_of_loader(directory / "grouped", directory / "again").passed());
  convert(directory / "grouped", directory / "expanded", {.target = "expanded"});
  CHECK_FALSE(config_of(directory / "expanded").contains("auto_map"));
  CHECK_FALSE(fs::exists(directory / "expanded" / kShared));
  CHECK_FALSE(fs::exists(directory / "expanded" / "modeling_regroup_gpt2.py"));
  CHECK(verification_of_loader(directory / "grouped", directory / "expanded").passed());
  // Through a file without code and back.
  convert(directory / "grouped", directory / "m.gguf", {.container = Container::kGguf});
  convert(directory / "m.gguf", directory / "back", {.container = Container::kSafetensors});
  CHECK(has_loader_code(config_of(directory / "back")));
  CHECK(fs::exists(directory / "back" / "modeling_regroup_gpt2.py"));
}

TEST_CASE("a model's own code is kept unless it is asked to be replaced", "[converter]") {
  const TemporaryDirectory directory;
  TinyModel bloom = golden_model("bloom");
  bloom.set("auto_map", R"({"AutoModelForCausalLM": "modeling_own.Own", "AutoTokenizer": "t.T"})");
  put_model(directory / "source", bloom);
  put_file(directory / "source" / "modeling_own.py", "own");
  const ConversionPlan plan = plan_conversion(open_model(directory / "source"), {.kv_heads = {2}});
  CHECK(plan.loader_files.empty());
  REQUIRE_FALSE(plan.notes.empty());
  CHECK(plan.notes[0].find("own code") != std::string::npos);
  convert(directory / "source", directory / "kept", {.kv_heads = {2}});
  CHECK(config_of(directory / "kept")["auto_map"]["AutoModelForCausalLM"] == "modeling_own.Own");
  CHECK(verification_of_loader(directory / "source", directory / "kept").passed());
  convert(directory / "source", directory / "replaced",
          {.kv_heads = {2}, .loader = LoaderChoice::kTransformers});
  const Json map = config_of(directory / "replaced")["auto_map"];
  CHECK(map["AutoModelForCausalLM"] == "modeling_regroup_bloom.RegroupBloomForCausalLM");
  CHECK(map["AutoTokenizer"] == "t.T");
  CHECK(verification_of_loader(directory / "source", directory / "replaced").passed());
}

TEST_CASE("code by others is named when it is kept, and replaced where it has regroup's names",
          "[converter]") {
  const TemporaryDirectory directory;
  TinyModel llama = golden_model("llama_mha");
  llama.set("auto_map", R"({"AutoModelForCausalLM": "evil/repo--modeling_evil.Evil"})");
  put_model(directory / "source", llama);
  put_file(directory / "source" / "evil.py", "evil");
  const auto notes_of = [&](const fs::path& source) {
    std::string all;
    for (const std::string& note : plan_conversion(open_model(source), {.kv_heads = {2}}).notes) {
      all += note + "\n";
    }
    return all;
  };
  CHECK(notes_of(directory / "source")
            .find("auto_map.AutoModelForCausalLM = evil/repo--modeling_evil.Evil; evil.py\n") !=
        std::string::npos);
  CHECK(notes_of(golden("bloom")).find("did not write") == std::string::npos);

  TinyModel bloom = golden_model("bloom");
  bloom.set("auto_map", R"({"AutoModel": "evil/repo--modeling_regroup_bloom.RegroupBloomModel"})");
  put_model(directory / "remote", bloom);
  put_file(directory / "remote" / kBloom, "edited");
  CHECK(notes_of(directory / "remote").find(std::string(kBloom) + " of the source is not copied") !=
        std::string::npos);
  convert(directory / "remote", directory / "result", {.kv_heads = {2}});
  CHECK(config_of(directory / "result")["auto_map"]["AutoModel"] ==
        "modeling_regroup_bloom.RegroupBloomModel");
  CHECK(bytes_of_file(directory / "result" / kBloom) != "edited");

  // A name of regroup's in a result that needs no code.
  llama.set("auto_map", R"({"AutoModelForCausalLM": "evil/repo--modeling_regroup_llama.Evil"})");
  put_model(directory / "named", llama);
  convert(directory / "named", directory / "uniform", {.kv_heads = {2}});
  CHECK_FALSE(config_of(directory / "uniform").contains("auto_map"));
  convert(directory / "named", directory / "layers", {.kv_heads = {6, 2}});
  CHECK(config_of(directory / "layers")["auto_map"]["AutoModelForCausalLM"] ==
        "modeling_regroup_llama.RegroupLlamaForCausalLM");
}

TEST_CASE("a file of the source with the name of the code is not overwritten", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", golden_model("bloom"));
  put_file(directory / "source" / kBloom, "somebody's");
  CHECK_THAT(
      refusal_of([&] { plan_conversion(open_model(directory / "source"), {.kv_heads = {2}}); }),
      is_wrong_usage(kBloom, "rename"));
  convert(directory / "source", directory / "plain",
          {.kv_heads = {2}, .loader = LoaderChoice::kNone});
  CHECK(bytes_of_file(directory / "plain" / kBloom) == "somebody's");
}

}  // namespace
}  // namespace regroup

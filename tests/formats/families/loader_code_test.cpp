// The Python code for transformers: which results get it, and its entries in config.json.
#include "formats/families/loader_code.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/base/checksum.h"
#include "formats/families/family.h"
#include "formats/model/model.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

std::optional<LoaderCode> code_for(const char* fixture) {
  const Model model = open_model(golden(fixture));
  return loader_code_for(model.config, model.spec);
}

// That a file defines the class that an entry of an auto_map, "module.Class", names.
auto defines_class_of(const Json& entry) {
  const std::string place = entry.get<std::string>();
  return Catch::Matchers::ContainsSubstring("\nclass " + place.substr(place.find('.') + 1) + "(");
}

TEST_CASE("every entry of an auto_map names a class in one of the files", "[formats]") {
  for (const char* fixture : {"gpt2",        "gpt_bigcode_mha",
                              "gpt_neox",    "gptj",
                              "persimmon",   "opt",
                              "gpt_neo",     "xglm",
                              "bloom",       "mpt",
                              "falcon_rw",   "t5",
                              "mt5",         "umt5",
                              "bart",        "mbart",
                              "marian",      "m2m_100",
                              "pegasus",     "whisper",
                              "bert",        "roberta",
                              "xlm_roberta", "camembert",
                              "electra",     "electra_small",
                              "distilbert",  "mpnet",
                              "modernbert"}) {
    CAPTURE(fixture);
    const auto code = code_for(fixture);
    REQUIRE(code);
    REQUIRE(code->files.size() == 2);
    CHECK(code->files[0].name == "regroup_heads.py");
    const std::string name(code->files[1].name);
    CHECK(code->auto_map.contains("AutoModel"));
    CHECK_FALSE(code->auto_map.contains("AutoConfig"));
    for (const auto& [auto_class, value] : code->auto_map.items()) {
      const std::string place = value.get<std::string>();
      CHECK(place.substr(0, place.find('.')) + ".py" == name);
      CHECK_THAT(std::string(code->files[1].text), defines_class_of(value));
    }
  }
}

TEST_CASE("code for heads that differ between layers is for all families with one number",
          "[formats]") {
  for (const char* fixture :
       {"llama",    "mistral",    "qwen2",    "qwen3",      "gemma",     "gemma2",    "gemma3",
        "olmo",     "olmo2",      "olmo3",    "phi",        "phi3",      "cohere",    "cohere2",
        "granite",  "smollm3",    "mixtral",  "granitemoe", "qwen2_moe", "qwen3_moe", "olmoe",
        "stablelm", "starcoder2", "nemotron", "glm"}) {
    CAPTURE(fixture);
    const Model model = open_model(golden(fixture));
    CHECK_FALSE(loader_code_for(model.config, model.spec));  // stock classes load it
    ModelSpec spec = model.spec;
    spec.kv_heads.front() = spec.kv_heads.back() + 1;
    const auto code = loader_code_for(model.config, spec);
    REQUIRE(code);
    CHECK(code->files[0].name == "regroup_layers.py");
    CHECK(code->auto_map.size() == 3);
    for (const auto& [auto_class, value] : code->auto_map.items()) {
      CHECK_THAT(std::string(code->files[1].text), defines_class_of(value));
    }
  }
}

TEST_CASE("Nemotron-NAS has code of one file, with a config", "[formats]") {
  const auto code = code_for("nemotron_nas");
  REQUIRE(code);
  REQUIRE(code->files.size() == 1);
  CHECK(code->auto_map.size() == 3);
  for (const auto& [auto_class, value] : code->auto_map.items()) {
    CHECK_THAT(std::string(code->files[0].text), defines_class_of(value));
  }
}

TEST_CASE("the class that a source names has an entry of its own, which the file makes",
          "[formats]") {
  for (const auto& [fixture, architecture, auto_class, layers] :
       {std::tuple{"bert", "BertForPreTraining", "AutoModelForPreTraining", false},
        {"gpt2", "GPT2ForSequenceClassification", "AutoModelForSequenceClassification", false},
        {"bloom", "RegroupAlibiBloomForTokenClassification", "AutoModelForTokenClassification",
         false},
        {"llama", "LlamaForSequenceClassification", "AutoModelForSequenceClassification", true}}) {
    CAPTURE(architecture);
    const Model model = open_model(golden(fixture));
    Json config = model.config;
    config["architectures"] = Json::array({architecture});
    ModelSpec spec = model.spec;
    spec.kv_heads.front() += layers ? 1 : 0;
    const auto code = loader_code_for(config, spec);
    REQUIRE(code);
    const std::string name = std::string(code->files[1].name);
    const std::string prefix = std::string(architecture).starts_with("Regroup") ? "" : "Regroup";
    CHECK(code->auto_map.at(auto_class) ==
          name.substr(0, name.size() - 2) + prefix + std::string(architecture));
    CHECK(code->files[1].text.find("\n__getattr__ = other_classes(") != std::string_view::npos);
    config["architectures"] = Json::array({"OtherForMultipleChoice"});
    CHECK_FALSE(loader_code_for(config, spec)->auto_map.contains("AutoModelForMultipleChoice"));
  }
}

// What a result of any version carries is known by these bytes.
TEST_CASE("the files that results carry have the bytes of earlier versions", "[formats]") {
  std::map<std::string_view, std::string_view> files;
  for (const LoaderFile& file : loader_files()) {
    files.emplace(file.name, file.text);
  }
  CHECK(files.size() == 56);
  std::string all;
  for (const auto& [name, text] : files) {
    all += fmt::format("{}\n{}", name, text);
  }
  CHECK(checksum_of(all) == "b467b5617bf7035b");
}

TEST_CASE("results with regroup's own model_type name a config class of that model_type",
          "[formats]") {
  for (const char* fixture : {"bloom", "mpt", "falcon_rw"}) {
    CAPTURE(fixture);
    const Model model = open_model(golden(fixture));
    const std::string text = with_alibi_names(model.config_text);
    const Json config = parse_json_object(text, "config.json");
    const auto code = loader_code_for(config, model.spec);
    REQUIRE(code);
    const std::string place = code->auto_map.at("AutoConfig");
    const std::string name = place.substr(place.find('.') + 1);
    const std::string_view file = code->files[1].text;
    const std::size_t defined = file.find("\nclass " + name + "(");
    REQUIRE(defined != std::string_view::npos);
    const std::string type = "model_type = " + config["model_type"].dump();
    CHECK(file.find(type, defined) != std::string_view::npos);
    const std::string causal = code->auto_map.at("AutoModelForCausalLM");
    CHECK(config["architectures"][0] == causal.substr(causal.find('.') + 1));
  }
}

TEST_CASE("there is no code for what the classes would compute differently", "[formats]") {
  CHECK_FALSE(code_for("llama"));
  CHECK_FALSE(code_for("falcon_40b"));  // another key and layout
  CHECK_FALSE(code_for("jina_bert"));   // BERTs with ALiBi, which transformers' BERT ignores
  CHECK_FALSE(code_for("mosaic_bert"));
  CHECK_FALSE(code_for("nomic_bert"));  // transformers cuts its projection into equal thirds
  const Model bert = open_model(golden("bert"));
  ModelSpec spec = bert.spec;
  spec.positions = PositionKind::kAlibi;  // transformers' BERT ignores it
  CHECK_FALSE(loader_code_for(bert.config, spec));
  spec = bert.spec;
  spec.not_computable = "something";
  CHECK_FALSE(loader_code_for(bert.config, spec));
  const std::string renamed = with_alibi_names(bert.config_text);
  CHECK_FALSE(loader_code_for(parse_json_object(renamed, ""), bert.spec));
}

TEST_CASE("adding code to a config and removing it restores every byte", "[formats]") {
  const auto code = code_for("bloom");
  REQUIRE(code);
  for (const std::string text :
       {R"({"model_type": "bloom"})", "{\n  \"model_type\": \"bloom\",\n  \"n_head\": 6\n}\n"}) {
    const std::string with = with_loader_code(text, *code);
    CHECK(has_loader_code(parse_json_object(with, "")));
    CHECK_FALSE(has_own_code(parse_json_object(with, "")));
    CHECK(without_loader_code(with) == text);
    CHECK(without_loader_code(text) == text);
  }
}

TEST_CASE("a model's own code is distinguished from regroup's", "[formats]") {
  const auto code = code_for("bloom");
  REQUIRE(code);
  const std::string text =
      R"({"auto_map": {"AutoTokenizer": ["a.B", null], "AutoModel": "modeling_own.Own"}})";
  CHECK(has_own_code(parse_json_object(text, "")));
  CHECK_FALSE(has_loader_code(parse_json_object(text, "")));
  const Json config = parse_json_object(with_loader_code(text, *code), "");
  CHECK_FALSE(has_own_code(config));
  CHECK(config["auto_map"]["AutoModel"] == "modeling_regroup_bloom.RegroupBloomModel");
  CHECK(config["auto_map"]["AutoTokenizer"] == Json::array({"a.B", nullptr}));
  const Json without = parse_json_object(without_loader_code(config.dump()), "");
  CHECK(without["auto_map"] == Json({{"AutoTokenizer", {"a.B", nullptr}}}));
  // As transformers writes it for a model from the hub.
  const Json hub = {
      {"auto_map", {{"AutoModel", "me/it--modeling_regroup_bloom.RegroupBloomModel"}}}};
  CHECK(has_loader_code(hub));
  CHECK_FALSE(has_own_code(hub));
  for (const char* odd : {R"({"auto_map": 1})", R"({"auto_map": {"AutoModel": 1}})", "{}"}) {
    CHECK_FALSE(has_loader_code(parse_json_object(odd, "")));
  }
}

TEST_CASE("the architecture that transformers saves for the code is read as its own", "[formats]") {
  TinyModel bloom = golden_model("bloom");
  bloom.set("architectures", R"(["RegroupBloomForCausalLM"])");
  bloom.set("auto_map",
            R"({"AutoModelForCausalLM": "modeling_regroup_bloom.RegroupBloomForCausalLM"})");
  CHECK(spec_of(bloom).architecture == "BloomForCausalLM");
  const Json config = parse_json_object(without_loader_code(bloom.config), "");
  CHECK(config["architectures"] == Json::array({"BloomForCausalLM"}));
  CHECK_FALSE(config.contains("auto_map"));
}

}  // namespace
}  // namespace regroup

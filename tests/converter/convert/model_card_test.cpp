// The README.md of a result: what it says, and what becomes of the source's.
#include "converter/convert/model_card.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

std::string card_of(const fs::path& directory) { return bytes_of_file(directory / "README.md"); }

// What a card says about the runtime of that name.
std::string row_of(const std::string& card, const std::string& runtime) {
  const std::string begin = "\n| " + runtime + " | ";
  const std::size_t at = card.find(begin);
  return at == std::string::npos
             ? "none"
             : card.substr(at + begin.size(), card.find(" |\n", at) - at - begin.size());
}

TEST_CASE("a card says what was done and how each runtime loads the result", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("bloom"), directory / "bloom", {.kv_heads = {2}});
  const std::string card = card_of(directory / "bloom");
  CHECK(
      card.starts_with("---\nmodel_name: bloom\nlibrary_name: transformers\n"
                       "pipeline_tag: text-generation\ntags:\n- regroup\n"
                       "- grouped-query-attention\n- custom_code\n---\n\n"
                       "# bloom with 2 key and value heads\n"));
  CHECK_THAT(card, ContainsSubstring("\n| self | 6 | 6 | 2 |\n"));
  CHECK_THAT(card, ContainsSubstring("method `mean`, grouping `contiguous`.\n"));
  CHECK_THAT(card, ContainsSubstring("None after the conversion."));
  CHECK_THAT(card,
             ContainsSubstring("**Warning:** this model is not usable as it is: method mean"));
  CHECK_THAT(row_of(card, "transformers"),
             ContainsSubstring("AutoModelForCausalLM.from_pretrained(DIRECTORY, "
                               "trust_remote_code=True)"));
  CHECK_THAT(row_of(card, "llama.cpp"), ContainsSubstring("--to gguf"));
  CHECK(row_of(card, "vLLM") == "no: it does not load these heads");
  CHECK(row_of(card, "mlx-lm") == "no: it does not load this architecture");

  convert(golden("llama_mha"), directory / "llama", {.kv_heads = {1}});
  const std::string llama = card_of(directory / "llama");
  CHECK_THAT(llama, ContainsSubstring("- multi-query-attention\n---"));
  CHECK(row_of(llama, "transformers") == "`AutoModelForCausalLM.from_pretrained(DIRECTORY)`");
  CHECK(row_of(llama, "vLLM") == "`vllm serve DIRECTORY`");
  CHECK(row_of(llama, "mlx-lm") == "`mlx_lm.generate --model DIRECTORY`");
  CHECK_THAT(row_of(llama, "CTranslate2"), ContainsSubstring("ct2-transformers-converter"));

  convert(golden("opt"), directory / "opt", {.kv_heads = {2}});
  const std::string by_code = row_of(card_of(directory / "opt"), "vLLM");
  CHECK_THAT(by_code, ContainsSubstring("--trust-remote-code --model-impl transformers"));
  convert(golden("opt"), directory / "no code", {.kv_heads = {2}, .loader = LoaderChoice::kNone});
  CHECK(row_of(card_of(directory / "no code"), "vLLM").starts_with("no: "));
  convert(golden("falcon_40b"), directory / "falcon", {.kv_heads = {2}});
  CHECK_THAT(row_of(card_of(directory / "falcon"), "transformers"),
             ContainsSubstring("its cache has all query heads"));
  const ConversionRequest mixed{.kv_heads = {3, 1, 1, 1, 1}};
  convert(golden("nemotron_nas"), directory / "nas", mixed);
  const std::string nas = card_of(directory / "nas");
  CHECK_THAT(row_of(nas, "transformers"), ContainsSubstring("trust_remote_code=True"));
  CHECK(row_of(nas, "vLLM") == "`vllm serve DIRECTORY --trust-remote-code`");
  ConversionRequest plain = mixed;
  plain.loader = LoaderChoice::kNone;
  convert(golden("nemotron_nas"), directory / "plain nas", plain);
  CHECK_THAT(row_of(card_of(directory / "plain nas"), "transformers"),
             ContainsSubstring("neither a config class nor a model class"));
  CHECK(row_of(card_of(directory / "plain nas"), "vLLM").starts_with("no: "));
}

TEST_CASE("a card says whether the model is usable as it is", "[converter]") {
  const ModelSpec spec = open_model(golden("llama_mha")).spec;
  const auto says = [&](const char* record) {
    Json config = Json::parse(bytes_of_file(golden("llama_mha") / "config.json"));
    config["regroup"] = Json::parse(record);
    const std::string card = model_card(config, spec, "");
    const auto has = [&](const char* words) { return card.find(words) != card.npos; };
    return std::string(has("**Warning:** this model is not usable as it is") ? "not"
                       : has("**Warning:** this model may not be usable")    ? "may not"
                                                                             : "");
  };
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "first"})") == "not");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 6, "pool": "mean"})") == "");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "mean", "uptrain": {"steps": 3}})") ==
        "");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "mean",
                 "uptrain": {"steps": 3, "tokens": 6144}})") == "may not");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "mean",
                 "uptrain": {"steps": 3, "tokens": 60000000}})") == "");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "mean",
                 "uptrain": {"steps": 3, "tokens": 6144},
                 "history": [{"source_kv_heads": 6, "kv_heads": 2, "pool": "mean"},
                             {"uptrain": {"steps": 9, "tokens": 60000000}}]})") == "");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "mean",
                 "distilled": {"kept": true}})") == "");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "mean",
                 "distilled": {"kept": false}})") == "not");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "lowrank"})") == "may not");
  CHECK(says(R"({"source_kv_heads": 6, "kv_heads": 2, "pool": "lowrank", "calibration": "0f",
                 "calibration_tokens": 10})") == "");
}

TEST_CASE("losses on held-out text are recorded and shown, without text that is no plain word",
          "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("llama_mha"), directory / "out", {.kv_heads = {1}});
  const ModelSpec spec = open_model(directory / "out").spec;
  const Json row = {{"model", "mean"}, {"loss", 4.5}, {"own_divergence", 0.75}, {"cosine", 0.25}};
  const Json hostile = {{"model", "</td><script>"}, {"loss", nullptr}, {"cosine", "x"}};
  const Json fact = {
      {"tokens", 64},
      {"context", 16},
      {"own_tokens", 32},
      {"models", {row, hostile}},
      {"answers", {{{"prompt", "Hi\n\n# <b>"}, {"source", "Hello"}, {"result", 3}}}}};
  const std::string text = bytes_of_file(directory / "out" / "config.json");
  rewrite_record(directory / "out", spec, with_member(text, {"regroup", "held_out"}, fact.dump()));
  const Json config = Json::parse(bytes_of_file(directory / "out" / "config.json"));
  CHECK(config["regroup"]["held_out"] == fact);
  const std::string card = card_of(directory / "out");
  CHECK_THAT(card, ContainsSubstring("| On 64 held-out tokens |"));
  CHECK_THAT(card, ContainsSubstring("\n| mean | 4.5000 | 0.2500 | 0.7500 |\n"));
  CHECK_THAT(
      card, ContainsSubstring("\n| not recorded | not recorded | not recorded | not recorded |\n"));
  CHECK(card.find("Divergence") == std::string::npos);  // no row has it
  CHECK(card.find("script") == std::string::npos);
  CHECK(card.find("lost part") == std::string::npos);  // the mean is not the result
  Json far = fact;
  far["models"][0]["model"] = "result";
  rewrite_record(directory / "out", spec, with_member(text, {"regroup", "held_out"}, far.dump()));
  CHECK_THAT(card_of(directory / "out"),
             ContainsSubstring("the result is 0.75 nats per token from it"));
  far["models"][0].erase("own_divergence");
  rewrite_record(directory / "out", spec, with_member(text, {"regroup", "held_out"}, far.dump()));
  CHECK_THAT(card_of(directory / "out"), ContainsSubstring("was neither trained on nor measured"));
  // Text stays on a line of its code block, whatever it is.
  CHECK_THAT(card, ContainsSubstring("\n    > Hi # <b>\n    source: Hello\n"));
}

TEST_CASE("a card promises no runtime what it cannot load", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("bloom"), directory / "plain", {.kv_heads = {2}, .loader = LoaderChoice::kNone});
  const std::string plain = card_of(directory / "plain");
  CHECK(plain.find("custom_code") == std::string::npos);
  CHECK(row_of(plain, "transformers").starts_with("no: "));
  convert(golden("bloom"), directory / "expanded", {.kv_heads = {2}, .target = "expanded"});
  const std::string expanded = card_of(directory / "expanded");
  CHECK(expanded.find("query-attention") == std::string::npos);
  CHECK_THAT(expanded, ContainsSubstring("stored several times"));
  CHECK(row_of(expanded, "transformers") == "`AutoModelForCausalLM.from_pretrained(DIRECTORY)`");
  convert(golden("t5"), directory / "t5", {.kv_heads = {2}});
  const std::string t5 = card_of(directory / "t5");
  CHECK_THAT(t5, ContainsSubstring("\n| encoder | 12 | 12 | 12 |\n| decoder | 12 | 12 | 2 |\n"));
  CHECK_THAT(row_of(t5, "transformers"), ContainsSubstring("AutoModelForSeq2SeqLM"));
  CHECK(row_of(t5, "llama.cpp").starts_with("no: "));
  TinyModel without_head = golden_model("bert");
  without_head.set("architectures", R"(["BertModel"])");
  convert(put_model(directory / "source", without_head), directory / "base", {.kv_heads = {2}});
  const std::string base = card_of(directory / "base");
  CHECK_THAT(row_of(base, "transformers"), ContainsSubstring("AutoModel.from_pretrained"));
  CHECK(row_of(base, "vLLM") == "not tried");
  CHECK(row_of(base, "llama.cpp").starts_with("no: "));
  CHECK(row_of(base, "regroup") == "`regroup inspect DIRECTORY`");
}

TEST_CASE("a result keeps the card of its source under another name", "[converter]") {
  const TemporaryDirectory directory;
  const std::string theirs =
      "---\nlicense: mit\nmodel-index: x\ndatasets:\n- c4\ntags:\n- code\n- gguf\n---\n# Theirs\n";
  put_model(directory / "source", golden_model("bloom"));
  put_file(directory / "source/README.md", theirs);
  convert(directory / "source", directory / "result", {.kv_heads = {2}});
  CHECK(bytes_of_file(directory / "result/README.source.md") == theirs);
  CHECK(card_of(directory / "result")
            .starts_with("---\nmodel_name: source\nlicense: mit\ndatasets:\n- c4\n"
                         "library_name: transformers\npipeline_tag: text-generation\n"
                         "tags:\n- code\n- regroup\n- grouped"));
  CHECK_THAT(card_of(directory / "result"),
             ContainsSubstring("made from: [README.source.md](README.source.md).\n"));

  convert(directory / "result", directory / "again", {.kv_heads = {1}});
  CHECK(bytes_of_file(directory / "again/README.source.md") == theirs);
  CHECK(bytes_of_file(directory / "again/README.source-2.md") == card_of(directory / "result"));
  CHECK_THAT(card_of(directory / "again"),
             ContainsSubstring("| self | 6 | 2 | 1 |") &&
                 ContainsSubstring(", [README.source-2.md](README.source-2.md).\n") &&
                 ContainsSubstring("tags:\n- code\n- regroup\n- multi-query-attention\n- custom"));
}

TEST_CASE("a card is dropped if the next one repeats all of it", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("bloom"), directory / "result", {.kv_heads = {2}});
  const Model source = open_model(directory / "result");
  const std::string before = card_of(directory / "result");
  const auto cards_of = [&](const Model& model, const std::string& config_text,
                            const std::string& card) {
    const TemporaryDirectory next;
    put_file(next / "README.md", card);
    write_model_card(model, next.path(), config_text, source.spec);
    CHECK(card_of(next.path()) != card);
    return tree_of(next.path()).size();
  };
  const auto cards_after = [&](const std::string& config_text, const std::string& card) {
    return cards_of(source, config_text, card);
  };
  const std::string trained =
      with_member(source.config_text, {"regroup", "uptrain"}, R"({"steps": 3, "tokens": 4})");
  CHECK(cards_after(trained, before) == 1);
  CHECK(cards_after(trained, before + "Edited.\n") == 2);
  CHECK(cards_after(with_member(trained, {"regroup", "pool"}, "1"), before) == 2);

  // The second training keeps the first in the history.
  fs::copy(directory / "result", directory / "once");
  put_file(directory / "once/config.json", trained);
  rewrite_record(directory / "once", source.spec, trained);
  ConversionRecord more;
  const Model once = open_model(directory / "once");
  more.history = record_of(once).steps();
  more.training = TrainingRecord{.steps = 5, .tokens = 6};
  const std::string first = card_of(directory / "once");
  CHECK(cards_of(once, config_with_facts(once.config_text, more), first) == 1);
}

TEST_CASE("a card does not vouch for code that regroup did not write, and names it",
          "[converter]") {
  const TemporaryDirectory directory;
  const auto card_with = [&](const char* fixture, const std::string& name, const char* auto_map) {
    TinyModel tiny = golden_model(fixture);
    tiny.set("auto_map", auto_map);
    put_file(put_model(directory / ("source of " + name), tiny) / "evil.py", "import os");
    convert(directory / ("source of " + name), directory / name, {.kv_heads = {2}});
    return card_of(directory / name);
  };
  const std::string remote = card_with(
      "llama_mha", "remote",
      R"({"AutoModelForCausalLM": "evil/repo--modeling_evil.Evil", "AutoModel": "`a|b`.C"})");
  CHECK(remote.find("runs Python files of this directory") == std::string::npos);
  CHECK_THAT(remote, ContainsSubstring("- `config.json: auto_map.AutoModelForCausalLM` = "
                                       "`evil/repo--modeling_evil.Evil`\n"));
  CHECK_THAT(remote, ContainsSubstring("= `?a?b?.C`\n") && ContainsSubstring("- `evil.py`\n"));
  CHECK_THAT(remote, ContainsSubstring("- custom_code\n"));
  const std::string tokenizer =
      card_with("bloom", "tokenizer", R"({"AutoTokenizer": ["evil.Evil", null]})");
  CHECK_THAT(row_of(tokenizer, "transformers"),
             ContainsSubstring("runs Python files of this directory"));
  CHECK_THAT(tokenizer, ContainsSubstring("- `config.json: auto_map.AutoTokenizer` = `evil.Evil`"));
  convert(golden("bloom"), directory / "clean", {.kv_heads = {2}});
  CHECK(card_of(directory / "clean").find("did not write") == std::string::npos);
  const ModelSpec spec = open_model(directory / "clean").spec;
  put_file(directory / "clean/regroup_heads.py", "edited");
  rewrite_record(directory / "clean", spec, bytes_of_file(directory / "clean/config.json"));
  CHECK(row_of(card_of(directory / "clean"), "transformers").find("two Python") ==
        std::string::npos);
  CHECK_THAT(card_of(directory / "clean"), ContainsSubstring("- `regroup_heads.py`\n"));
}

TEST_CASE("the base model is known for models of a hub cache", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path snapshot = directory / "models--org--tiny" / "snapshots" / "abc";
  put_model(snapshot, golden_model("llama_mha"));
  put_file(snapshot / "README.md", "---\nbase_model: other/older\nlicense: mit\n---\n");
  convert(snapshot, directory / "result", {.kv_heads = {2}});
  const std::string card = card_of(directory / "result");
  CHECK(card.starts_with("---\nbase_model: org/tiny\nmodel_name: tiny\nlicense: mit\n"));
  CHECK_THAT(card, ContainsSubstring("# tiny with "));
  convert(directory / "result", directory / "again", {.kv_heads = {1}});
  CHECK(card_of(directory / "again")
            .starts_with("---\nbase_model: org/tiny\nmodel_name: tiny\nlicense: mit\n"));
}

TEST_CASE("a card without a name of the model has one of its heading or its directory",
          "[converter]") {
  const TemporaryDirectory directory;
  const auto name_of = [&](const std::string& folder, const std::string& card) {
    const fs::path source = put_model(directory / folder, golden_model("llama_mha"));
    if (!card.empty()) {
      put_file(source / "README.md", card);
    }
    const fs::path result = directory / ("result of " + folder);
    convert(source, result, {.kv_heads = {6, 3}});
    const std::string written = card_of(result);
    CHECK_THAT(written, ContainsSubstring("\n- grouped-query-attention\n"));
    const std::string begin = "model_name: ";
    const std::size_t at = written.find(begin);
    return at == std::string::npos
               ? "none"
               : written.substr(at + begin.size(), written.find('\n', at) - at - begin.size());
  };
  CHECK(name_of("tiny-1", "") == "tiny-1");
  CHECK(name_of("my m\xc3\xb6"
                "del",
                "") == "my-m--del");
  CHECK(name_of("---", "") == "none");
  CHECK(name_of("a", "---\n# comment\nlicense: mit\n---\n\n# Real-Name \r\n") == "Real-Name");
  CHECK(name_of("b", "# Real-Name") == "Real-Name");
  CHECK(name_of("c", "---\nlicense: mit\n---\n# Introduction\n") == "c");
  CHECK(name_of("d", "Text\n\n# install-1\n") == "d");
  CHECK(name_of("e", "---") == "e");
}

TEST_CASE("the task on the card is that of the model's class", "[converter]") {
  ModelSpec spec = spec_of(golden_model("llama_mha"));
  for (const auto& [architecture, task] : {std::pair{"LlamaForCausalLM", "text-generation"},
                                           {"BertForMaskedLM", "fill-mask"},
                                           {"BertModel", "feature-extraction"},
                                           {"Qwen2ForRewardModel", ""},
                                           {"LlamaForSequenceClassification", ""},
                                           {"T5ForConditionalGeneration", ""}}) {
    spec.architecture = architecture;
    CHECK(pipeline_tag_of(spec) == task);
  }
}

TEST_CASE("a card shows losses that were recorded, and no text that is not a plain word",
          "[converter]") {
  const ModelSpec spec = spec_of(golden_model("llama_mha"));
  const Json trained = parse_json_object(
      R"json({"regroup": {"version": "<b>", "source_kv_heads": "[x](http://x)", "kv_heads": 2,
          "pool": "`; rm", "grouping": "similar", "layers": [{"key_energy_kept": 0.5}, {"layer": 1},
          {"key_energy_kept": 0.7}], "uptrain": {"steps": 12, "tokens": 3456, "eval_tokens": 789,
          "eval_loss_before": 3.25, "eval_loss": 2.5}}})json",
      "");
  const std::string card = model_card(trained, spec, "");
  CHECK_THAT(card, ContainsSubstring("12 steps of 3,456 tokens in all."));
  CHECK_THAT(card, ContainsSubstring("(789 tokens) | |\n|---|---|\n| before training | 3.2500 |\n"
                                     "| after | 2.5000 |\n"));
  CHECK_THAT(card, ContainsSubstring("keys' energy kept, on the text | 0.6 |\n"));
  for (const char* unsafe : {"<b>", "http", "; rm"}) {
    CHECK(card.find(unsafe) == std::string::npos);
  }
  CHECK_THAT(card, ContainsSubstring("Made by regroup, which gives"));
  for (const char* odd : {"{}", R"({"regroup": 1})", R"({"regroup": {}})",
                          R"({"regroup": {"alibi": {}}})", R"({"regroup": {"uptrain": 1}})"}) {
    CAPTURE(odd);
    CHECK(model_card(parse_json_object(odd, ""), spec, "").empty());
  }
}

}  // namespace
}  // namespace regroup

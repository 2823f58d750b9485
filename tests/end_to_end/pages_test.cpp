// HTML pages of inspect, plan, diff and verify: complete, self-contained and safe.
#include <algorithm>
#include <cstdlib>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include "tests/child_program.h"
#include "tests/cli/report/markup_reader.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

// Runs a command that writes a page, and checks the rules for every page.
Markup page_of(std::vector<std::string> command, const fs::path& page) {
  command.insert(command.end(), {"--html", page.string()});
  const ProgramResult result = run_program(command);
  CAPTURE(result.err);
  CHECK((result.exit_code == 0 || result.exit_code == 5));
  CHECK_THAT(result.err, ContainsSubstring("wrote " + page.string()));
  const std::string text = bytes_of_file(page);
  Markup read = read_markup(text);
  CHECK(read.fault == "");
  for (const char* reach_out : {"<script", "http://", "https://", "url(", "@import"}) {
    std::string without_namespace = text;
    const std::string xmlns = "xmlns=\"http://www.w3.org/2000/svg\"";
    for (std::size_t at = 0; (at = without_namespace.find(xmlns, at)) != text.npos;) {
      without_namespace.erase(at, xmlns.size());
    }
    CAPTURE(reach_out);
    CHECK(without_namespace.find(reach_out) == std::string::npos);
  }
  CHECK(std::count(read.attributes.begin(), read.attributes.end(), "src") == 0);
  auto ids = read.ids;
  std::sort(ids.begin(), ids.end());
  CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
  for (const std::string& reference : read.references) {
    CAPTURE(reference);
    CHECK(std::binary_search(ids.begin(), ids.end(), reference));
  }
  return read;
}

long count(const Markup& page, const std::string& tag) {
  return std::count(page.tags.begin(), page.tags.end(), tag);
}

TEST_CASE("the page of inspect has heads and caches and slopes and requested tables",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const Markup page = page_of({"inspect", golden("bloom_12").string(), "--tensors", "--stats"},
                              directory / "p.html");
  CHECK(count(page, "svg") == 2);
  for (const char* words : {"12 query heads", "KV cache by context", "ALiBi slopes",
                            "transformer.h.1.self_attention.query_key_value.weight"}) {
    CHECK_THAT(page.text, ContainsSubstring(words));
  }
  CHECK_THAT(page.text, !ContainsSubstring("Heads by layer"));  // they have the same heads
  CHECK_THAT(page_of({"inspect", golden("nemotron_nas").string()}, directory / "p.html").text,
             ContainsSubstring("Heads by layer"));
}

TEST_CASE("the page compares a result's cache with its source's", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path once = directory / "once", twice = directory / "twice";
  REQUIRE(run_program({"convert", golden("llama_mha").string(), once.string(), "--kv-heads", "2"})
              .exit_code == 0);
  REQUIRE(run_program({"convert", once.string(), twice.string(), "--kv-heads", "1"}).exit_code ==
          0);
  const Markup page = page_of({"inspect", twice.string()}, directory / "p.html");
  CHECK_THAT(page.text, ContainsSubstring("of its source"));
  CHECK(page.text.find("with a kv head per query head") == page.text.npos);
}

TEST_CASE("the page of a compared result begins with the losses", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path model = put_model(directory / "model", tiny_llama({}));
  std::string config = bytes_of_file(model / "config.json");
  config.insert(config.find('{') + 1, R"("regroup": {"held_out": {"tokens": 4096, "context": 512,
    "models": [{"model": "source", "loss": 3.5, "cosine": 1.0}, {"model": "mean", "cosine": 0.5},
               {"model": "result", "loss": 3.75, "cosine": 0.9}],
    "answers": [{"prompt": "Is 1 < 2?", "source": "Yes.", "result": "<b>No</b>"}]}},)");
  put_file(model / "config.json", config);
  const std::string text = page_of({"inspect", model.string()}, directory / "p.html").text;
  const std::size_t losses = text.find("Compared on 4,096 tokens that the conversion did not use");
  REQUIRE(losses != text.npos);
  CHECK(losses < text.find("hidden size"));
  CHECK_THAT(text, ContainsSubstring("3.750") && ContainsSubstring("42.52"));
  CHECK_THAT(text, ContainsSubstring("Is 1 < 2?") && ContainsSubstring("<b>No</b>"));
}

TEST_CASE("the page has all warnings of inspect in one list", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  REQUIRE(run_program({"convert", golden("llama_mha").string(), result.string(), "--kv-heads", "1"})
              .exit_code == 0);
  Json config = Json::parse(bytes_of_file(result / "config.json"));
  config["num_key_value_heads"] = 2;
  put_file(result / "config.json", config.dump());
  page_of({"inspect", result.string()}, directory / "p.html");
  const std::string page = bytes_of_file(directory / "p.html");
  const std::size_t list = page.find("<ul class=\"warnings\">"), end = page.find("</ul>", list);
  REQUIRE(list != page.npos);
  CHECK(page.find("<ul class=\"warnings\">", end) == page.npos);
  CHECK_THAT(page.substr(list, end - list),
             ContainsSubstring("the config says 2 kv heads, the tensors hold 1") &&
                 ContainsSubstring("this model is not usable as it is"));
}

TEST_CASE("the page of a plan says that it is an estimate", "[end_to_end]") {
  const TemporaryDirectory directory;
  const Markup page = page_of({"plan", golden("llama_mha").string()}, directory / "p.html");
  CHECK_THAT(page.text, ContainsSubstring("estimated") && ContainsSubstring("not measured"));
}

TEST_CASE("inspect writes a page for every kind of input", "[end_to_end]") {
  const TemporaryDirectory directory;
  for (const char* name : {"t5", "bert", "nemotron_nas", "gguf/llama.gguf", "llama_torch",
                           "llama_sharded/model-00002-of-00008.safetensors"}) {
    CAPTURE(name);
    const Markup page = page_of({"inspect", golden(name).string()}, directory / "p.html");
    CHECK_THAT(page.text, ContainsSubstring("Summary"));
  }
}

TEST_CASE("a long table of layers is collapsed but complete", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path model = put_model(directory / "model", tiny_llama({.layers = 40}));
  const Markup page = page_of({"inspect", model.string()}, directory / "p.html");
  CHECK_THAT(page.text, ContainsSubstring("Layers (40)"));
  CHECK(count(page, "tr") >= 41);
}

TEST_CASE("the page of a result shows the conversion's report and the training's metrics",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string result = (directory / "result").string();
  CHECK(
      run_program({"convert", golden("llama_mha").string(), result, "--kv-heads", "1"}).exit_code ==
      0);
  put_file(directory / "c.json", R"({"source": "the-source", "pool": "lowrank", "layers": [
    {"attention": "decoder", "layer": 0, "key_energy_kept": 0.5, "value_energy_kept": 0.8125},
    {"attention": "decoder", "layer": 1, "key_energy_kept": 0.6, "value_energy_kept": 0.9}]})");
  put_file(directory / "result.run/metrics.jsonl",
           "{\"step\": 0, \"eval_loss\": 3.25}\n{\"step\": 1, \"loss\": 2.5, \"lr\": 0.1, "
           "\"tokens_per_second\": 26400}\n"
           "{\"step\": 2, \"loss\": 2.0, \"lr\": 0.05}\n{\"step\": 2, \"eval_loss\": 2.125}\n");
  const Markup page = page_of({"inspect", result, "--conversion", (directory / "c.json").string()},
                              directory / "p.html");
  for (const char* words : {"the-source", "Energy kept", "81.25 %", "Uptraining", "3.25 -> 2.125",
                            "calibration", "26,400"}) {
    CHECK_THAT(page.text, ContainsSubstring(words));
  }
  CHECK(run_program({"inspect", result, "--run", (directory / "result.run").string()}).exit_code ==
        2);
}

TEST_CASE("the page of a result shows the layers that its config records", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path result = directory / "result";
  CHECK(run_program({"convert", golden("llama_mha").string(), result.string(), "--kv-heads", "1"})
            .exit_code == 0);
  const auto page = [&] {
    return page_of({"inspect", result.string()}, directory / "p.html").text;
  };
  CHECK_THAT(page(), !ContainsSubstring("Energy kept"));
  Json config = Json::parse(bytes_of_file(result / "config.json"));
  config["regroup"]["layers"] = Json::parse(
      R"([{"attention": "decoder", "layer": 0, "key_energy_kept": 0.5, "value_energy_kept": 0.8125}])");
  put_file(result / "config.json", config.dump());
  CHECK_THAT(page(), ContainsSubstring("Energy kept") && ContainsSubstring("81.25 %"));
}

TEST_CASE("the page of plan has a curve for every number of kv heads and the command",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama_mha").string();
  const Markup page = page_of(
      {"plan", model, "--vram", "1MiB", "--context", "1k", "--batch", "4", "--bandwidth", "1GB/s"},
      directory / "p.html");
  CHECK(count(page, "svg") == 3);
  CHECK(count(page, "table") == 6);  // three of them collapsed
  for (const char* words : {"(now)", "regroup convert", "Tokens per second at most", "1 MiB"}) {
    CHECK_THAT(page.text, ContainsSubstring(words));
  }
}

TEST_CASE("the page of diff lists the differences", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "a", tiny_llama());
  put_model(directory / "b", tiny_llama({.kv_heads = 4}));
  const std::string a = (directory / "a").string(), b = (directory / "b").string();
  const Markup page = page_of({"diff", a, b}, directory / "p.html");
  CHECK_THAT(page.text, ContainsSubstring("model.layers.0-1.self_attn.k_proj.weight") &&
                            ContainsSubstring("num_key_value_heads"));
  CHECK_THAT(page_of({"diff", a, a}, directory / "p.html").text,
             ContainsSubstring("No difference."));
}

TEST_CASE("the page of verify has the verdict of every check and the record", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string source = golden("bloom_12").string();
  const fs::path result = directory / "result";
  REQUIRE(run_program({"convert", source, result.string(), "--kv-heads", "4"}).exit_code == 0);
  const auto page = [&] {
    return page_of({"verify", source, result.string()}, directory / "p.html");
  };
  const Markup passed = page();
  for (const char* words : {"Passed: ", "copied tensors", "pooled or moved tensors",
                            "config, metadata, slopes", "ALiBi slopes", "mean"}) {
    CHECK_THAT(passed.text, ContainsSubstring(words));
  }
  CHECK_THAT(passed.text, !ContainsSubstring("differ"));
  CHECK(count(passed, "svg") == 2);

  std::string file = bytes_of_file(result / "model.safetensors");
  file.back() = static_cast<char>(file.back() ^ 1);
  put_file(result / "model.safetensors", file);
  Json config = Json::parse(bytes_of_file(result / "config.json"));
  config["layer_norm_epsilon"] = 0.5;
  put_file(result / "config.json", config.dump());
  const Markup failed = page();
  CHECK_THAT(failed.text, ContainsSubstring("Not what its recorded conversion makes") &&
                              ContainsSubstring("1 tensor of other values, 1 setting") &&
                              ContainsSubstring("1 differ") &&
                              ContainsSubstring("layer_norm_epsilon"));
  CHECK_THAT(failed.text, !ContainsSubstring("Passed: "));
}

TEST_CASE("markup in names and configs is shown as text", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string attack =
      "</td></title></style><script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>";
  TinyModel model = tiny_llama();
  model.tensors.push_back(model.tensor("model.norm.weight"));
  model.tensors.back().name = attack;
  model.set("architectures", Json({"LlamaForCausalLM"}).dump()).set("extra", Json(attack).dump());
  const fs::path evil = put_model(directory / "<b>&amp;", model);
  TinyModel other = tiny_llama();
  put_model(directory / "other", other);
  put_file(directory / "c.json",
           Json({{"source", attack},
                 {"pool", attack},
                 {"layers", {{{"attention", attack}, {"layer", 0}, {"key_energy_kept", 0.5}}}}})
               .dump());
  const Markup inspected = page_of(
      {"inspect", evil.string(), "--tensors", "--conversion", (directory / "c.json").string()},
      directory / "p.html");
  const Markup compared =
      page_of({"diff", evil.string(), (directory / "other").string()}, directory / "q.html");
  for (const Markup& page : {inspected, compared}) {
    CHECK(count(page, "script") + count(page, "img") + count(page, "b") == 0);
    CHECK_THAT(page.text, ContainsSubstring("<script>alert(1)</script>"));
  }
}

TEST_CASE("writing an HTML page overwrites a page but no other file", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama").string();
  const fs::path page = directory / "p.html";
  page_of({"inspect", model}, page);
  page_of({"inspect", model}, page);
  CHECK(tree_of(directory.path()).size() == 1);  // no partial files
  put_file(directory / "weights.safetensors", "precious");
  put_file(directory / "own.html",
           "<!doctype html>\n<html lang=\"en\">\n<head>\n<title>Mine</title>");
  for (const fs::path& wrong :
       {directory / "weights.safetensors", directory / "own.html", directory.path()}) {
    const ProgramResult result = run_program({"inspect", model, "--html", wrong.string()});
    CHECK(result.exit_code == 2);
    CHECK(result.one_line_of_error());
  }
  CHECK(bytes_of_file(directory / "weights.safetensors") == "precious");
  const ProgramResult nowhere =
      run_program({"inspect", model, "--html", (directory / "own.html/p.html").string()});
  CHECK(nowhere.exit_code == 2);
  CHECK(nowhere.out.empty());  // told before the report
  CHECK_THAT(nowhere.err, ContainsSubstring("own.html: is not a folder"));
  page_of({"inspect", model}, directory / "new/folders/p.html");
}

TEST_CASE("pages open in a browser without messages", "[end_to_end]") {
  if (std::system("command -v chromium > /dev/null") != 0) {
    SKIP("chromium is not installed");
  }
  const TemporaryDirectory directory;
  const auto complaints = [&](const fs::path& page) {
    const fs::path log = directory / "log";
    const std::string command = fmt::format(
        "HOME='{0}' timeout 60 chromium --headless --no-sandbox --disable-gpu --no-first-run "
        "--enable-logging=stderr --v=0 --user-data-dir='{0}/profile' --virtual-time-budget=1000 "
        "--screenshot='{0}/shot.png' 'file://{1}' > '{2}' 2>&1",
        directory.path().string(), page.string(), log.string());
    CHECK(std::system(command.c_str()) == 0);
    CHECK(fs::file_size(directory / "shot.png") > 1000);
    return bytes_of_file(log).find("CONSOLE") != std::string::npos;
  };
  page_of({"inspect", golden("bloom_12").string(), "--stats"}, directory / "p.html");
  CHECK_FALSE(complaints(directory / "p.html"));
  // The page's policy blocks inserted scripts.
  std::string broken = bytes_of_file(directory / "p.html");
  broken.insert(broken.find("<main"), "<script>alert(1)</script>");
  put_file(directory / "broken.html", broken);
  CHECK(complaints(directory / "broken.html"));
}

}  // namespace
}  // namespace regroup

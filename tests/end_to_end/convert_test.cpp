// regroup convert as a program.
#include <memory>
#include <set>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/model/model_directory.h"
#include "formats/spec/alibi.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

std::string text(const fs::path& path) { return path.string(); }

TEST_CASE("convert pools a golden model bit for bit and reports what it did", "[end_to_end]") {
  const TemporaryDirectory directory;
  const ProgramResult result = run_program(
      {"convert", text(golden("llama_bf16")), text(directory / "gqa"), "--kv-heads", "4"});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("12 query heads, kv heads 12 -> 4 (mean)"));
  CHECK_THAT(result.err, ContainsSubstring("wrote " + text(directory / "gqa")));
  CHECK_THAT(result.err,
             ContainsSubstring("\nnext: regroup inspect " + text(directory / "gqa") + "\n"));
  CHECK(tree_of(directory.path()).size() == 4);  // the directory, its config, card and weights

  const Checkpoint converted = open_checkpoint(directory / "gqa");
  const Checkpoint pooled = open_checkpoint(golden("llama_bf16") / "pooled.safetensors");
  for (const TensorInfo& expected : pooled.tensors()) {
    if (expected.name.starts_with("g4/")) {
      const bool same =
          bytes_of(converted, expected.name.substr(3)) == bytes_of(pooled, expected.name);
      CHECK(same);
    }
  }
}

TEST_CASE("lowrank computes the same bytes in every process", "[end_to_end]") {
  if (!fs::exists(fs::path(REGROUP_PROGRAM).parent_path() / "regroup-compute")) {
    SKIP("built without LibTorch");
  }
  const TemporaryDirectory directory;
  TinyModel model = golden_model("llama_mha");
  for (BuiltTensor& tensor : model.tensors) {  // wide, so that the last bits show
    tensor = tensor_of(tensor.name, DType::kF64, tensor.shape, values_of(tensor));
  }
  const fs::path source = put_model(directory / "source", model);
  std::set<std::string> results;
  for (int run = 0; run < 16; ++run) {
    const fs::path result = directory / std::to_string(run);
    REQUIRE(
        run_program({"convert", text(source), text(result), "--kv-heads", "3", "--pool", "lowrank"})
            .exit_code == 0);
    results.insert(bytes_of_file(result / "model.safetensors"));
  }
  CHECK(results.size() == 1);
}

TEST_CASE("a round trip through GGUF keeps models with every kind of GELU", "[end_to_end]") {
  for (const char* name : {"gpt_neox", "gptj", "mpt", "falcon_7b"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const std::string file = text(directory / "model.gguf"), back = text(directory / "back");
    REQUIRE(run_program({"convert", text(golden(name)), file, "--to", "gguf"}).exit_code == 0);
    const ProgramResult result = run_program({"convert", file, back, "--to", "hf"});
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.err, !ContainsSubstring("one GGUF file"));
    CAPTURE(result.err);
    const Checkpoint source = open_checkpoint(golden(name)), copy = open_checkpoint(back);
    for (const TensorInfo& tensor : copy.tensors()) {
      const bool same = bytes_of(copy, tensor.name) == bytes_of(source, tensor.name);
      CHECK(same);
    }
    for (const char* output : {"half.gguf", "half"}) {
      const ProgramResult half =
          run_program({"convert", file, text(directory / output), "--dtype", "fp16"});
      const bool noted = half.err.find("one GGUF file") != std::string::npos;
      CHECK(noted == (std::string_view(output) == "half"));
    }
    CHECK(run_program({"inspect", back, "--json"}).json()["architecture"] ==
          run_program({"inspect", text(golden(name)), "--json"}).json()["architecture"]);
  }
}

TEST_CASE("convert with the same number of kv heads copies every tensor", "[end_to_end]") {
  for (const auto& [name, heads] : {std::pair{"llama_mha", "6"}, std::pair{"gpt2_base", "6"},
                                    std::pair{"bloom_12", "12"}, std::pair{"llama_sharded", "4"}}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const ProgramResult result =
        run_program({"convert", text(golden(name)), text(directory / "copy"), "--kv-heads", heads});
    CHECK(result.exit_code == 0);
    const Checkpoint source = open_checkpoint(golden(name));
    const Checkpoint copy = open_checkpoint(directory / "copy");
    REQUIRE(copy.tensors().size() == source.tensors().size());
    for (const TensorInfo& tensor : source.tensors()) {
      const bool same = bytes_of(copy, tensor.name) == bytes_of(source, tensor.name);
      CHECK(same);
      CHECK(copy.at(tensor.name).shape == tensor.shape);
    }
  }
}

TEST_CASE("convert reports as JSON on stdout and notes on stderr", "[end_to_end]") {
  const TemporaryDirectory directory;
  const ProgramResult result = run_program(
      {"convert", text(golden("gpt2")), text(directory / "gqa"), "--kv-heads", "3", "--json"});
  CHECK(result.exit_code == 0);
  const Json report = result.json();
  CHECK(report.at("source") == text(golden("gpt2")));
  CHECK(report.at("output") == text(directory / "gqa"));
  CHECK(report.at("dry_run") == false);
  CHECK(report.at("architecture") == "GPT2LMHeadModel");
  CHECK(report.at("query_heads") == 6);
  CHECK(report.at("source_kv_heads") == 6);
  CHECK(report.at("kv_heads") == 3);
  CHECK(report.at("pool") == "mean");
  CHECK(report.at("changed_tensors") == 4);
  CHECK(report.at("kv_bytes_per_token_before") == 2 * 2 * 36 * 4);
  CHECK(report.at("kv_bytes_per_token_after") == 2 * 2 * 18 * 4);
  CHECK(report.at("source_bytes").get<int>() - report.at("output_bytes").get<int>() ==
        2 * 37 * 36 * 4);
  // The result carries code, other runtimes do not load it, and 3 is not a power of two.
  CHECK(report.at("notes").size() == 3);
  CHECK_THAT(result.err, ContainsSubstring("note: ") && !ContainsSubstring("regroup inspect"));
}

TEST_CASE("convert reports the cache of models that have one", "[end_to_end]") {
  const TemporaryDirectory directory;
  const auto command = [&](const char* name) {
    return std::vector<std::string>{
        "convert", text(golden(name)), text(directory / "x"), "--kv-heads",
        "4",       "--attention",      "self,cross,encoder",  "--dry-run"};
  };
  const auto report = [&](const char* name) {
    std::vector<std::string> as_json = command(name);
    as_json.push_back("--json");
    return run_program(as_json).json();
  };
  CHECK_THAT(run_program(command("llama_bf16")).out, ContainsSubstring("KV cache"));
  CHECK_THAT(run_program(command("t5")).out,
             ContainsSubstring("KV cache  864 B -> 288 B per token; cross 864 B -> 288 B per token "
                               "of the source"));
  CHECK(report("t5").at("cross_kv_bytes_per_token_after") == 288);
  CHECK_THAT(run_program(command("bert")).out, !ContainsSubstring("KV cache"));
  CHECK(report("bert").at("kv_bytes_per_token_before").is_null());
}

TEST_CASE("each side of the cache's change is in the dtype that it has", "[end_to_end]") {
  const TemporaryDirectory directory;
  for (const auto& [name, container] :
       {std::pair{"llama_mha", "safetensors"}, std::pair{"bloom_12", "safetensors"},
        std::pair{"llama_mha", "gguf"}}) {
    CAPTURE(name, container);
    const std::string source = text(golden(name));
    const std::string result = text(directory / name) + "-" + container;
    const Json report = run_program({"convert", source, result, "--kv-heads", "2", "--dtype",
                                     "bf16", "--to", container, "--json"})
                            .json();
    const auto in = [&](const std::string& model) {
      return run_program({"inspect", model, "--json"}).json().at("kv_bytes_per_token");
    };
    CHECK(report.at("kv_bytes_per_token_before") == in(source));
    CHECK(report.at("kv_bytes_per_token_after") == in(result));
  }
  CHECK_THAT(run_program({"convert", text(golden("llama_mha")), text(directory / "x"), "--kv-heads",
                          "2", "--dtype", "bf16", "--dry-run"})
                 .out,
             ContainsSubstring(" in F32 -> ") && ContainsSubstring(" in BF16 per token"));
}

TEST_CASE("a dry run writes nothing and lists the tensors that would change", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama());
  const auto before = tree_of(directory.path());
  const std::vector<std::string> command{
      "convert",  text(directory / "source"), text(directory / "new" / "gqa"), "--kv-heads", "4",
      "--dry-run"};
  const ProgramResult shown = run_program(command);
  CHECK(shown.exit_code == 0);
  CHECK_THAT(shown.out, ContainsSubstring("model.layers.0-1.self_attn.v_proj.weight"));
  CHECK_THAT(shown.out, ContainsSubstring("[24, 6]"));
  CHECK_THAT(shown.out, ContainsSubstring("[8, 6]"));
  CHECK_THAT(shown.out, !ContainsSubstring("q_proj"));
  CHECK_THAT(shown.err,
             ContainsSubstring("nothing was written") && !ContainsSubstring("regroup inspect"));

  put_model(directory / "deep", tiny_llama({.layers = 4}));
  const ProgramResult some =
      run_program({"convert", text(directory / "deep"), text(directory / "gqa"), "--kv-heads",
                   "4,12,4,4", "--dry-run"});
  std::filesystem::remove_all(directory / "deep");
  CHECK_THAT(some.out, ContainsSubstring("model.layers.0,2-3.self_attn.k_proj.weight"));

  std::vector<std::string> as_json = command;
  as_json.push_back("--json");
  CHECK(run_program(as_json).json().at("dry_run") == true);
  const bool untouched = tree_of(directory.path()) == before;
  CHECK(untouched);
}

TEST_CASE("quiet before or after the command leaves only warnings on stderr", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_bloom());
  const ProgramResult before = run_program(
      {"--quiet", "convert", text(directory / "source"), text(directory / "a"), "--kv-heads", "3"});
  const ProgramResult after = run_program(
      {"convert", text(directory / "source"), text(directory / "b"), "--kv-heads", "3", "-q"});
  CHECK(before.exit_code == 0);
  CHECK(after.exit_code == 0);
  CHECK_THAT(before.err, ContainsSubstring("warning: the result is not usable"));
  CHECK_THAT(("\n" + before.err), !ContainsSubstring("\nnote: ") && !ContainsSubstring("\nwrote "));
  CHECK(after.err == before.err);
  CHECK_FALSE(before.out.empty());
  const ProgramResult copied = run_program(
      {"convert", text(directory / "source"), text(directory / "c"), "--to", "torch", "-q"});
  CHECK(copied.err.empty());
  const bool same = tree_of(directory / "a") == tree_of(directory / "b");
  CHECK(same);
}

TEST_CASE("shards hold at most the requested size of tensors", "[end_to_end]") {
  const TemporaryDirectory directory;
  const ProgramResult result =
      run_program({"convert", text(golden("llama_mha")), text(directory / "gqa"), "--kv-heads", "2",
                   "--max-shard-size", "20kB"});
  CHECK(result.exit_code == 0);
  for (const auto& entry : fs::directory_iterator(directory / "gqa")) {
    const bool shard = entry.path().filename().string().starts_with("model-");
    CHECK((!shard || entry.file_size() < 20'000 + 4000));  // tensors and the header
  }
  CHECK(fs::exists(directory / "gqa" / "model.safetensors.index.json"));
  CHECK_FALSE(fs::exists(directory / "gqa" / "model.safetensors"));
  CHECK(open_checkpoint(directory / "gqa").files().size() > 2);
}

TEST_CASE("BLOOM's slopes are recorded exactly for any number of heads", "[end_to_end]") {
  for (const std::int64_t heads : {8, 12, 71}) {
    CAPTURE(heads);
    const TemporaryDirectory directory;
    put_model(directory / "source",
              tiny_bloom({.layers = 1, .query_heads = heads, .kv_heads = heads}));
    const ProgramResult result = run_program(
        {"convert", text(directory / "source"), text(directory / "mqa"), "--kv-heads", "1"});
    CHECK(result.exit_code == 0);
    const Json config = Json::parse(bytes_of_file(directory / "mqa" / "config.json"));
    const auto rows = Json::parse(bytes_of_file(golden("alibi_slopes.json"))).at("slopes");
    CHECK(config.at("regroup").at("alibi").at("slopes").get<std::vector<double>>() ==
          rows.at(static_cast<std::size_t>(heads - 1)).get<std::vector<double>>());
  }
}

TEST_CASE("a converted model can be converted again and records its last step", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "mha", tiny_gpt2());
  for (const auto& [from, to, heads] :
       {std::tuple{"mha", "six", "6"}, std::tuple{"six", "two", "2"}}) {
    CHECK(
        run_program({"convert", text(directory / from), text(directory / to), "--kv-heads", heads})
            .exit_code == 0);
  }
  const Json config = Json::parse(bytes_of_file(directory / "two" / "config.json"));
  CHECK(config.at("num_key_value_heads") == 2);
  CHECK(config.at("regroup").at("source_kv_heads") == 6);
  CHECK(run_program({"convert", text(directory / "two"), text(directory / "no"), "--kv-heads", "6"})
            .exit_code == 2);
}

TEST_CASE("a list of kv heads has one entry per layer", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama());
  const ProgramResult result =
      run_program({"convert", text(directory / "source"), text(directory / "gqa"), "--kv-heads",
                   "12,4", "--json"});
  CHECK(result.exit_code == 0);
  CHECK(result.json().at("kv_heads") == Json{12, 4});
  CHECK(open_checkpoint(directory / "gqa").at("model.layers.1.self_attn.k_proj.weight").shape ==
        Shape{8, 6});
}

TEST_CASE("of eight conversions to one destination one succeeds and the others report it",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_bloom());
  std::vector<std::unique_ptr<RunningProgram>> programs;
  for (int i = 0; i < 8; ++i) {
    programs.push_back(std::make_unique<RunningProgram>(
        std::vector<std::string>{"convert", text(directory / "source"),
                                 text(directory / "out" / "gqa"), "--kv-heads", "4"}));
  }
  int winners = 0;
  for (const auto& program : programs) {
    const ProgramResult result = program->wait();
    CAPTURE(result.err);
    winners += result.exit_code == 0 ? 1 : 0;
    CHECK((result.exit_code == 0 || result.one_line_of_error()));
    CHECK((result.exit_code == 0 || result.exit_code == 2 || result.exit_code == 4));
  }
  CHECK(winners == 1);
  CHECK(tree_of(directory / "out").size() == 6);
  CHECK(run_program({"inspect", text(directory / "out" / "gqa")}).exit_code == 0);
}

TEST_CASE("GGUF in half precision keeps norms in F32 and gives the source's logits",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  for (const char* dtype : {"fp16", "bf16"}) {
    CAPTURE(dtype);
    const ProgramResult result =
        run_program({"convert", text(golden("llama_mha")), text(directory / dtype), "--to", "gguf",
                     "--dtype", dtype, "-q"});
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
  }
}

TEST_CASE("paths may have any bytes and JSON reports stay valid", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path source = put_model(directory / "caf\xe9 \x1b[2J", tiny_llama());
  const ProgramResult result = run_program(
      {"convert", text(source), text(directory / "out \xff"), "--kv-heads", "4", "--json"});
  CHECK(result.exit_code == 0);
  CHECK(result.json().at("kv_heads") == 4);
  CHECK(fs::exists(directory / "out \xff" / "config.json"));
  CHECK(result.err.find('\x1b') == std::string::npos);
}

TEST_CASE("heads that are only stored several times are not reported as pooled", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string grouped = put_model(directory / "a", tiny_llama({.kv_heads = 4})).string();
  const std::string stored = (directory / "b").string();
  const ProgramResult result = run_program({"expand", grouped, stored, "--kv-heads", "12"});
  CHECK_THAT(result.out, ContainsSubstring("kv heads 4 -> 12 (each stored 3 times)") &&
                             !ContainsSubstring("mean"));
  CHECK_THAT(run_program({"inspect", stored}).out,
             ContainsSubstring("converted   4 kv heads, stored as 12, by regroup"));
  const ProgramResult retyped =
      run_program({"convert", grouped, (directory / "c").string(), "--dtype", "bf16"});
  CHECK_THAT(retyped.out, ContainsSubstring("kv heads 4\n"));
  const std::string all = put_model(directory / "d", tiny_llama()).string();
  const ProgramResult pooled = run_program(
      {"convert", all, (directory / "e").string(), "--kv-heads", "4", "--target", "expanded"});
  CHECK_THAT(pooled.out, ContainsSubstring("kv heads 12 -> 4 (mean, each stored 3 times)"));
}

TEST_CASE("inspect reports how a result was made in safetensors and torch files", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string source = put_model(directory / "a", tiny_llama()).string();
  for (const char* container : {"safetensors", "torch"}) {
    CAPTURE(container);
    const std::string result = (directory / container).string();
    REQUIRE(run_program({"convert", source, result, "--kv-heads", "4", "--pool", "random",
                         "--pool-seed", "7", "--to", container})
                .exit_code == 0);
    const Json told = run_program({"inspect", result, "--json"}).json()["conversion"];
    CHECK(told["kv heads"] == "12 -> 4");
    CHECK(told["pooling"] == "random, seed 7");
    CHECK(told["grouping"] == "contiguous");
    CHECK(told["calibration"] == "none");
    CHECK(told["refit"] == "none");
  }
  CHECK(run_program({"inspect", source, "--json"}).json()["conversion"].is_null());
}

}  // namespace
}  // namespace regroup

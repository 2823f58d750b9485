// regroup inspect as a program.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/spec/alibi.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

Json inspected(const fs::path& path) {
  const ProgramResult result = run_program({"inspect", path.string(), "--json"});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  const Json report = result.json();
  for (const char* key :
       {"family", "architecture", "layers", "hidden_size", "query_heads", "kv_heads",
        "config_kv_heads", "head_dim", "vocab_size", "dtype", "parameters", "bytes",
        "kv_bytes_per_token", "attention", "positions", "alibi_slopes"}) {
    CAPTURE(path, key);
    CHECK(report.contains(key));
  }
  return report;
}

fs::path converted(const fs::path& source, const fs::path& destination,
                   const std::string& kv_heads) {
  CHECK(run_program({"convert", source.string(), destination.string(), "--kv-heads", kv_heads})
            .exit_code == 0);
  return destination;
}

TEST_CASE("inspect describes a Llama", "[end_to_end]") {
  const Json report = inspected(golden("llama"));
  CHECK(report["family"] == "llama");
  CHECK(report["architecture"] == "LlamaForCausalLM");
  CHECK(report["layers"] == 2);
  CHECK(report["hidden_size"] == 36);
  CHECK(report["query_heads"] == 12);
  CHECK(report["kv_heads"] == 4);
  CHECK(report["head_dim"] == 8);
  CHECK(report["vocab_size"] == 64);
  CHECK(report["dtype"] == "F32");
  CHECK(report["bytes"].get<int>() == 4 * report["parameters"].get<int>());
  CHECK(report["kv_bytes_per_token"] == 2 * 2 * 4 * 8 * 4);
  CHECK(report["attention"] == "gqa");
  CHECK(report["positions"] == "rope");
  CHECK(report["alibi_slopes"].is_null());
}

TEST_CASE("inspect describes every family before and after conversion", "[end_to_end]") {
  const TemporaryDirectory directory;
  for (const auto& [name, positions, heads] :
       {std::tuple{"llama_mha", "rope", 6}, std::tuple{"gpt2", "learned", 6},
        std::tuple{"bloom", "alibi", 6}, std::tuple{"bloom_12", "alibi", 12}}) {
    CAPTURE(name);
    const Json before = inspected(golden(name));
    CHECK(before["attention"] == "mha");
    CHECK(before["kv_heads"] == heads);
    CHECK(before["positions"] == positions);
    CHECK(before["provenance"].empty());

    const Json after = inspected(converted(golden(name), directory / name, "3"));
    CHECK(after["attention"] == "gqa");
    CHECK(after["kv_heads"] == 3);
    CHECK(after["config_kv_heads"] == 3);
    CHECK(after["positions"] == positions);
    CHECK(after["disagreements"].empty());
    CHECK(after["kv_bytes_per_token"].get<int>() * heads ==
          before["kv_bytes_per_token"].get<int>() * 3);
    CHECK(after["provenance"]["source_kv_heads"] == heads);
    CHECK(after["provenance"]["pool"] == "mean");
    if (std::string_view(positions) == "alibi") {
      CHECK(after["alibi_slopes"].get<std::vector<double>>() == alibi_slopes(heads));
    }
    const Json mqa = inspected(converted(golden(name), directory / (std::string(name) + "1"), "1"));
    CHECK(mqa["attention"] == "mqa");
  }
}

TEST_CASE("inspect accepts a directory or an index or a shard", "[end_to_end]") {
  CHECK(inspected(golden("llama_sharded"))["files"] == 8);
  CHECK(inspected(golden("llama_sharded") / "model.safetensors.index.json")["kv_heads"] == 4);
  const Json shard = inspected(golden("llama_sharded") / "model-00002-of-00008.safetensors");
  CHECK(shard["family"] == "unknown");
  CHECK(shard["kv_heads"].is_null());
  CHECK(shard["bytes"].get<int>() > 0);
}

TEST_CASE("a converted weight file is described without its config", "[end_to_end]") {
  const TemporaryDirectory directory;
  converted(golden("bloom_12"), directory / "gqa", "4");
  fs::copy_file(directory / "gqa" / "model.safetensors", directory / "bare.safetensors");
  const Json report = inspected(directory / "bare.safetensors");
  CHECK(report["family"] == "bloom");
  CHECK(report["query_heads"] == 12);
  CHECK(report["kv_heads"] == 4);
  CHECK(report["head_dim"] == 3);
  CHECK(report["attention"] == "gqa");
  CHECK(report["positions"] == "alibi");
  CHECK(report["alibi_slopes"].get<std::vector<double>>() == alibi_slopes(12));
}

TEST_CASE("inspect lists tensors with dtype and shape and file and byte range", "[end_to_end]") {
  const fs::path path = golden("llama_sharded");
  const ProgramResult result = run_program({"inspect", path.string(), "--json", "--tensors"});
  const Json tensors = result.json().at("tensors");
  CHECK(tensors.size() == 21);
  for (const Json& tensor : tensors) {
    CHECK(tensor.at("dtype") == "F32");
    const fs::path file = path / tensor.at("file").get<std::string>();
    CHECK(tensor.at("byte_range").at(1).get<std::uint64_t>() <= fs::file_size(file));
    std::uint64_t bytes = 4;
    for (const Json& size : tensor.at("shape")) {
      bytes *= size.get<std::uint64_t>();
    }
    CHECK(tensor.at("byte_range").at(1).get<std::uint64_t>() -
              tensor.at("byte_range").at(0).get<std::uint64_t>() ==
          bytes);
  }
}

TEST_CASE("inspect's text names the architecture and head counts and tensors", "[end_to_end]") {
  const ProgramResult result = run_program({"inspect", golden("bloom_12").string(), "--tensors"});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK_THAT(result.out, ContainsSubstring("BloomForCausalLM"));
  CHECK_THAT(result.out, ContainsSubstring("mha: 12 query heads, 12 kv heads, head dimension 3"));
  CHECK_THAT(result.out, ContainsSubstring("alibi"));
  CHECK_THAT(result.out,
             ContainsSubstring("transformer.h.0.self_attention.query_key_value.weight"));
}

TEST_CASE("inspect warns if config and tensors disagree and uses the tensors", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory.path(), tiny_llama({.kv_heads = 4}).set("num_key_value_heads", "12"));
  const ProgramResult result = run_program({"inspect", directory.path().string()});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("12 query heads, 4 kv heads"));
  CHECK_THAT(result.err, ContainsSubstring("warning: every layer: the config says 12 kv heads"));
}

TEST_CASE("control bytes from a file never reach the terminal", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_checkpoint(directory / "w.safetensors",
                 std::vector{varied_tensor("evil\x1b[2J\x07\n\xc2\x9b", DType::kF32, {1})},
                 {{"regroup.architecture", "\x1b]0;owned\x07"}, {"regroup.pool", "\x1b[31m"}});
  for (const bool as_json : {false, true}) {
    std::vector<std::string> command{"inspect", (directory / "w.safetensors").string(),
                                     "--tensors"};
    if (as_json) {
      command.emplace_back("--json");
    }
    const ProgramResult result = run_program(command);
    CHECK(result.exit_code == 0);
    CHECK(result.out.find('\x1b') == std::string::npos);
    CHECK(result.out.find('\x07') == std::string::npos);
    CHECK(result.out.find("\xc2\x9b") == std::string::npos);
  }
}

}  // namespace
}  // namespace regroup

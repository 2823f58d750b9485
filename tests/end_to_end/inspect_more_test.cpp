// The options of regroup inspect: layers, statistics, tensors by pattern and order, caches.
#include <cmath>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

ProgramResult inspect(const fs::path& path, std::vector<std::string> more) {
  more.insert(more.begin(), {"inspect", path.string()});
  return run_program(more);
}

TEST_CASE("inspect reports the cache for a context and a batch", "[end_to_end]") {
  const Json report =
      inspect(golden("llama"), {"--context", "1k", "--batch", "3", "--json"}).json();
  CHECK(report["kv_cache"]["bytes"] == 3 * 1024 * 2 * 2 * 4 * 8 * 4);
  CHECK(report["kv_cache"]["dtype"] == "F32");
  CHECK(inspect(golden("bert"), {"--json"}).json()["kv_cache"].is_null());
  CHECK_THAT(inspect(golden("llama"), {"--context", "8k", "--batch", "2"}).out,
             ContainsSubstring("8 MiB at 8,192 tokens x 2"));
}

TEST_CASE("different kv heads are summarised in text and listed in JSON", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama({.layers = 32}));
  std::string request = "12";
  for (int i = 1; i < 32; ++i) {
    request += i < 30 ? ",12" : ",4";
  }
  const fs::path result = directory / "result";
  CHECK(run_program(
            {"convert", (directory / "source").string(), result.string(), "--kv-heads", request})
            .exit_code == 0);
  CHECK_THAT(inspect(result, {}).out,
             ContainsSubstring("12 kv heads in layers 0-29, 4 in layers 30-31"));
  CHECK(inspect(result, {"--json"}).json()["kv_heads"].size() == 32);
}

TEST_CASE("inspect --layers has a row for every layer", "[end_to_end]") {
  const Json report = inspect(golden("nemotron_nas"), {"--layers", "--json"}).json();
  CHECK(report["per_layer"].size() == report["layers"]);
  CHECK_THAT(inspect(golden("t5"), {"--layers"}).out,
             ContainsSubstring("encoder") && ContainsSubstring("cross"));
  const fs::path shard = golden("llama_sharded") / "model-00002-of-00008.safetensors";
  CHECK(inspect(shard, {"--layers"}).exit_code == 2);
}

TEST_CASE("tensors are selected by a pattern and sorted", "[end_to_end]") {
  const auto names = [](std::vector<std::string> options) {
    options.insert(options.end(), {"--tensors", "--json"});
    std::vector<std::string> found;
    const Json report = inspect(golden("llama"), options).json();
    for (const Json& tensor : report["tensors"]) {
      found.push_back(tensor["name"]);
    }
    return found;
  };
  CHECK(names({"--filter", "*.k_proj.*", "--sort", "name"}) ==
        std::vector<std::string>{"model.layers.0.self_attn.k_proj.weight",
                                 "model.layers.1.self_attn.k_proj.weight"});
  const auto by_name = names({"--sort", "name"});
  CHECK(std::is_sorted(by_name.begin(), by_name.end()));
  const Json largest =
      inspect(golden("llama"), {"--sort", "bytes", "--tensors", "--json"}).json()["tensors"];
  for (std::size_t i = 1; i < largest.size(); ++i) {
    CHECK(largest[i - 1]["bytes"] >= largest[i]["bytes"]);
  }
  const ProgramResult none = inspect(golden("llama"), {"--tensors", "--filter", "nothing*"});
  CHECK(none.exit_code == 2);
  CHECK(none.one_line_of_error());
}

TEST_CASE("inspect --stats computes statistics and marks non-finite tensors", "[end_to_end]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_llama({.dtype = DType::kBF16});
  BuiltTensor& norm = model.tensor("model.norm.weight");
  norm = tensor_of(norm.name, norm.dtype, norm.shape,
                   std::vector<double>{3, -4, 0, 0, std::nan(""), INFINITY});
  put_model(directory.path(), model);
  const ProgramResult text = inspect(directory.path(), {"--stats", "--filter", "model.norm.*"});
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.err,
             ContainsSubstring("warning: model.norm.weight: 1 NaN and 1 infinite of 6 elements"));
  const Json report = inspect(directory.path(), {"--stats", "--json"}).json();
  CHECK(report["statistics"].size() == model.tensors.size());
  for (const Json& tensor : report["statistics"]) {
    if (tensor["name"] == "model.norm.weight") {
      CHECK(tensor["norm"] == 5.0);
      CHECK(tensor["minimum"] == -4.0);
      CHECK(tensor["nan"] == 1);
      CHECK(tensor["infinite"] == 1);
    }
  }
  CHECK(report["disagreements"].size() == 1);
}

TEST_CASE("inspect --stats reads quantised blocks", "[end_to_end]") {
  const Json report = inspect(golden("gguf/llama.gguf"), {"--stats", "--json"}).json();
  for (const Json& tensor : report["statistics"]) {
    CAPTURE(tensor["name"].get<std::string>(), tensor["dtype"].get<std::string>());
    CHECK(tensor["norm"].get<double>() > 0.0);
  }
}

TEST_CASE("inspect shows a snapshot of the hub's cache by its name", "[end_to_end]") {
  const TemporaryDirectory directory;
  const auto snapshot = directory / "models--org--tiny/snapshots/aaaa1111";
  put_model(snapshot, tiny_llama());
  const auto page = directory / "page.html";
  const ProgramResult run = inspect(snapshot, {"--html", page.string()});
  CHECK_THAT(run.out, ContainsSubstring("org/tiny (LlamaForCausalLM)"));
  CHECK_THAT(bytes_of_file(page), ContainsSubstring("<title>tiny"));
}

}  // namespace
}  // namespace regroup

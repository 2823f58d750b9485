// `regroup bench decode` as a program: reported sizes and refusals. Speed is not tested.
#include <cmath>

#include <catch2/catch_test_macros.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

ProgramResult bench_decode(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"bench",    "decode", model,       "--tokens", "2",
                                     "--rounds", "2",      "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

TEST_CASE("bench decode reports cache and weights of every variant and load", "[uptrain]") {
  const ProgramResult result = bench_decode(
      golden("llama_mha").string(),
      {"--kv-heads", "6,2,1", "--batch", "1,3", "--context", "5,8", "--dtype", "fp32", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const Json about = run_program({"inspect", golden("llama_mha").string(), "--json"}).json();
  const Json results = result.json()["results"];
  REQUIRE(results.size() == 12);
  std::size_t i = 0;
  for (const int batch : {1, 3}) {
    for (const int context : {5, 8}) {
      for (const int kv_heads : {6, 2, 1}) {
        CAPTURE(batch, context, kv_heads);
        const Json& row = results[i++];
        const int layers = about["layers"], head_dim = about["head_dim"];
        CHECK(row["kv_heads"] == kv_heads);
        CHECK(row["cache_bytes"] == 2 * layers * kv_heads * head_dim * 4 * batch * context);
        // One kv head less: the weights [d, D] and biases [d] of K and V, four bytes per element.
        const int each = 2 * layers * head_dim * (about["hidden_size"].get<int>() + 1) * 4;
        CHECK(row["weight_bytes"] == about["parameters"].get<int>() * 4 - (6 - kv_heads) * each);
        CHECK(row["seconds_per_token"] > 0.0);
        CHECK(!row.contains("prefill_seconds"));
      }
    }
  }
}

TEST_CASE("bench decode runs all kinds of models and configs without weights", "[uptrain]") {
  const TemporaryDirectory directory;
  put_file(directory / "config.json", bytes_of_file(golden("bloom") / "config.json"));
  for (const std::string& model :
       {golden("stablelm_qk").string(), golden("mistral").string(), golden("t5").string(),
        golden("nemotron_nas").string(), (directory / "config.json").string()}) {
    CAPTURE(model);
    const ProgramResult result =
        bench_decode(model, {"--context", "9", "--prefill-chunk", "4", "--json"});
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    const Json row = result.json()["results"][0];
    CHECK(row["prefill_seconds"] > 0.0);
    const Json about =
        run_program({"plan", model, "--context", "9", "--cache-dtype", "bf16", "--json"}).json();
    CAPTURE(about.dump());
    CHECK(about.dump().find(row["cache_bytes"].dump()) != std::string::npos);
  }
  const ProgramResult fewer =
      bench_decode(golden("stablelm_qk").string(), {"--kv-heads", "6,1", "--context", "4"});
  CAPTURE(fewer.err);
  CHECK(fewer.exit_code == 0);
  CHECK(fewer.out.find("speed-up") != std::string::npos);
}

TEST_CASE("bench decode counts the experts that a step uses", "[uptrain]") {
  const std::string model = golden("olmoe").string();
  const ProgramResult result =
      bench_decode(model, {"--context", "5", "--batch", "1,3", "--dtype", "fp32", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const Json rows = result.json()["results"];
  const auto weights_read = [](const Json& row) {
    return row["bytes_per_second"].get<double>() * row["seconds_per_token"].get<double>() -
           row["cache_bytes"].get<double>();
  };
  const Json plan = run_program({"plan", model, "--json"}).json();
  const auto all = rows[0]["weight_bytes"].get<double>();
  CHECK(std::abs(weights_read(rows[0]) - plan["costs"][0]["weight_bytes_per_step"].get<double>()) <
        1);
  CHECK(weights_read(rows[1]) > weights_read(rows[0]) + 1);
  CHECK(weights_read(rows[1]) < all);
}

TEST_CASE("bench decode reports the cache with a window and attention sinks", "[uptrain]") {
  const std::string llama = golden("llama_mha").string();
  const auto bytes = [](const std::string& model, std::vector<std::string> more) {
    more.insert(more.end(), {"--dtype", "fp32", "--json"});
    const ProgramResult result = bench_decode(model, more);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    return result.json()["results"][0]["cache_bytes"].get<int>();
  };
  const int one = bytes(llama, {"--context", "1"});
  CHECK(bytes(llama, {"--context", "40", "--window", "6"}) == 6 * one);
  CHECK(bytes(llama, {"--context", "40", "--window", "6", "--sinks", "2"}) == 8 * one);
  CHECK(bytes(llama, {"--context", "5", "--window", "6", "--sinks", "2"}) == 5 * one);
  CHECK(bytes(llama, {"--context", "40", "--window", "6", "--sinks", "2", "--prefill-chunk",
                      "4"}) == 8 * one);
}

TEST_CASE("bench decode refuses invalid requests with one line", "[uptrain]") {
  const auto check = [](const std::string& model, const std::vector<std::string>& more,
                        int exit_code, const std::string& word) {
    const ProgramResult result = bench_decode(model, more);
    CAPTURE(result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find(word) != std::string::npos);
  };
  const std::string llama = golden("llama_mha").string();
  check(llama, {"--kv-heads", "4"}, 2, "4");
  check(llama, {"--context", "few"}, 2, "--context");
  check(llama, {"--device", "abacus"}, 2, "abacus");
  check(llama, {"--no-graphs"}, 2, "--no-graphs");
  check(llama, {"--wrong"}, 2, "see regroup bench decode --help");
  check(golden("gpt2").string(), {"--context", "4k"}, 2, "learned positions");
  check(golden("bert").string(), {}, 2, "bidirectional");
  check(llama, {"--sinks", "2"}, 2, "--window");
  check(llama, {"--window", "9223372036854775807"}, 2, "--window");
  check(golden("gpt2").string(), {"--window", "4", "--sinks", "2"}, 2, "learned");
  check(golden("t5").string(), {"--window", "4"}, 2, "T5");
  check(llama + "-none", {}, 3, "llama_mha-none");
  const ProgramResult nothing = run_program({"bench"});
  CHECK(nothing.exit_code == 2);
  CHECK(nothing.err.find("regroup bench --help") != std::string::npos);
}

}  // namespace
}  // namespace regroup

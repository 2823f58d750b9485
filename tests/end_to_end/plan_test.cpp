// regroup plan as a program.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

// The config.json of Llama-2-7B, without weights.
std::string put_llama_7b(const std::filesystem::path& directory) {
  put_file(directory / "config.json", R"({"architectures": ["LlamaForCausalLM"],
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "torch_dtype": "float16", "vocab_size": 32000})");
  return directory.string();
}

TEST_CASE("plan lists the costs of every number of kv heads", "[end_to_end]") {
  const TemporaryDirectory directory;
  const ProgramResult result =
      run_program({"plan", put_llama_7b(directory / "m"), "--bandwidth", "3.35TB/s"});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("32 (now)"));
  CHECK_THAT(result.out, ContainsSubstring("12.6 GiB    512 KiB    2 GiB"));
  CHECK_THAT(result.out, ContainsSubstring("at 3.35 TB/s"));
  CHECK(std::count(result.out.begin(), result.out.end(), '\n') < 24);  // fits on a screen
}

TEST_CASE("plan names heads that differ by layer by their range", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string mixed = (directory / "mixed").string();
  REQUIRE(run_program({"convert", golden("llama_bf16").string(), mixed, "--kv-heads", "4,2"})
              .exit_code == 0);
  CHECK_THAT(run_program({"plan", mixed}).out, ContainsSubstring("2 or 4 (now)"));
}

TEST_CASE("plan chooses the most kv heads that fit and prints the command", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = put_llama_7b(directory / "m");
  const std::vector<std::string> command{"plan",      model,  "--vram",  "24GiB",
                                         "--context", "8192", "--batch", "16"};
  const ProgramResult result = run_program(command);
  CHECK(result.exit_code == 0);
  // 16 sequences of 8192 tokens: 64 GiB with 32 heads, 8 GiB with 4, 16 GiB with 8.
  CHECK_THAT(result.out, ContainsSubstring("4 kv heads fit in 24 GiB") &&
                             ContainsSubstring("\n  regroup convert " + model + " " + model +
                                               "-gqa4 --kv-heads 4 --text TEXT\nTEXT is a file"));
  // Weights of 12.6 GiB leave 11.4 GiB, 17.8 % of 64 GiB.
  CHECK_THAT(result.out, ContainsSubstring(" --kv-budget 17% in place of --kv-heads") &&
                             ContainsSubstring("Put the weights beside config.json first."));
  std::vector<std::string> of_config = command;
  of_config[1] += "/./config.json";
  CHECK_THAT(run_program(of_config).out,
             ContainsSubstring("regroup convert " + model + " " + model));
  std::vector<std::string> as_json = command;
  as_json.emplace_back("--json");
  const Json report = run_program(as_json).json();
  CHECK(report["choice"]["convert_to"] == 4);
  CHECK_THAT(report["choice"]["command"].get<std::string>(),
             EndsWith("-gqa4 --kv-heads 4 --text TEXT"));
  CHECK(report["choice"]["kv_budget_percent"] == 17);
  CHECK(report["costs"].size() == 6);
  CHECK(report["costs"][0]["kv_bytes_per_token"] == 512 * 1024);
  CHECK(report["costs"][0]["contexts"][0]["cache_bytes"] == 64UL << 30);
  CHECK(report["costs"][0]["contexts"][0]["largest_batch"] == 2);
  CHECK(report["cache_dtype"] == "F16");
}

TEST_CASE("plan says if no conversion is needed or none suffices", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = put_llama_7b(directory / "m");
  const auto plan = [&](const char* vram, const char* batch) {
    return run_program({"plan", model, "--vram", vram, "--context", "4k", "--batch", batch});
  };
  CHECK_THAT(plan("80GB", "8").out, ContainsSubstring("no conversion is needed"));
  const ProgramResult none = plan("11GiB", "16");
  CHECK(none.exit_code == 2);
  CHECK(none.one_line_of_error());
  CHECK_THAT(none.out, ContainsSubstring("32 (now)"));  // the table shows by how much
  CHECK_THAT(none.err, ContainsSubstring("16 sequences of 4,096 tokens do not fit in 11 GiB even "
                                         "with 1 kv head:"));
}

TEST_CASE("plan counts the cache in the given dtype", "[end_to_end]") {
  const TemporaryDirectory directory;
  const Json report = run_program({"plan", put_llama_7b(directory / "m"), "--cache-dtype", "fp8",
                                   "--context", "1k,2k", "--batch", "2", "--json"})
                          .json();
  CHECK(report["costs"][0]["kv_bytes_per_token"] == 256 * 1024);
  CHECK(report["costs"][0]["contexts"][1]["cache_bytes"] == 2UL * 2048 * 256 * 1024);
  CHECK_FALSE(report.contains("choice"));
}

TEST_CASE("plan refuses invalid quantities", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = put_llama_7b(directory / "m");
  for (const auto& [option, value] :
       {std::pair{"--vram", "24 apples"}, std::pair{"--vram", "-1GB"},
        std::pair{"--vram", "1e99TB"}, std::pair{"--bandwidth", "fast"},
        std::pair{"--context", "4k,,8k"}, std::pair{"--context", "0"}, std::pair{"--batch", "1,2"},
        std::pair{"--cache-dtype", "fp3"}}) {
    CAPTURE(option, value);
    const ProgramResult result = run_program({"plan", model, option, value});
    CHECK(result.exit_code == 2);
    CHECK(result.one_line_of_error());
    CHECK_THAT(result.err, ContainsSubstring(option));
  }
}

TEST_CASE("plan warns of tensors that do not fit the config", "[end_to_end]") {
  const TemporaryDirectory directory;
  TinyModel model = golden_model("llama");
  model.remove("model.norm.weight");
  const ProgramResult faulty =
      run_program({"plan", put_model(directory / "model", model).string()});
  CHECK(faulty.exit_code == 0);
  CHECK_THAT(faulty.err, ContainsSubstring("warning: model.norm.weight is missing"));
  for (const auto& sound : {golden("llama"), golden("llama") / "config.json"}) {
    CHECK_THAT(run_program({"plan", sound.string()}).err, !ContainsSubstring("warning"));
  }
}

TEST_CASE("plan quotes paths for the shell", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = put_llama_7b(directory / "it's a model");
  const ProgramResult result =
      run_program({"plan", model, "--vram", "24GiB", "--context", "8k", "--batch", "16"});
  CHECK_THAT(result.out, ContainsSubstring("it'\\''s a model' '"));
}

TEST_CASE("plan reports both caches of an encoder-decoder", "[end_to_end]") {
  const ProgramResult result = run_program({"plan", golden("t5").string()});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("cross"));
  CHECK_THAT(result.out, ContainsSubstring("of the text and of the source"));
}

}  // namespace
}  // namespace regroup

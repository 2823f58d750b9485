// Command lines: help, misspelt names, options without effect.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Words = std::vector<std::string>;

void check_refused(const Words& words, const std::string& why) {
  CAPTURE(words);
  const ProgramResult result = run_program(words);
  CHECK(result.exit_code == kExitUsage);
  CHECK(result.one_line_of_error());
  CHECK(result.out.empty());
  CHECK_THAT(result.err, ContainsSubstring(why));
}

TEST_CASE("a misspelt name is refused with the nearest one", "[end_to_end]") {
  const std::string model = golden("llama").string();
  check_refused({"inpsect", model}, "\"inpsect\" is not a command; did you mean inspect?");
  check_refused({"uptrian", model}, "did you mean uptrain?");
  check_refused({"convrt", "a", "b", "--kv-heads", "1"}, "did you mean convert?");
  check_refused({"convert", model, "out", "--num_key_value_heads=4"}, "did you mean --kv-heads?");
  check_refused({"convert", model, "out", "--kv-heads", "4", "--overwrite_output_dir"},
                "never replaced");
  check_refused({"help", "covnert"}, "did you mean convert?");
  check_refused({"convert", model, "out", "--kvheads", "4"}, "did you mean --kv-heads?");
  check_refused({"inspect", model, "--laeyrs"}, "did you mean --layers?");
  check_refused({"--quite", "inspect", model}, "did you mean --quiet?");
  check_refused({"--json", "inspect", model}, "--json is an option of commands: it goes after");
  check_refused({"convert", model, "out", "--device", "gpu"},
                "--device gpu: allowed are cpu, cuda and cuda:N");
  check_refused({"inspect", model, "--contxt=5"},
                "--contxt is not an option; did you mean --context?");
  check_refused({"tokenize", "x", "--no-boss"}, "did you mean --no-bos?");
  check_refused({"inspect", model, "--\x1b[31m"}, "\\x1b");
  check_refused({"inspect", model, "---"}, "--- is not an option");
  check_refused({"inspect", model, "---=5"}, "--- is not an option");
}

TEST_CASE("an option that names no value is refused instead of taking the next word",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama_mha").string();
  const std::string out = (directory / "out").string();
  check_refused({"convert", model, out, "--kv-heads", "2", "--calibration=", "--dry-run"},
                "--calibration: an empty value");
  check_refused({"convert", model, out, "--kv-heads", "2", "--calibration", "--dry-run"},
                "--calibration needs a value, not --dry-run");
  check_refused({"--config=", "inspect", model}, "--config: an empty value");
  check_refused({"inspect", ""}, "MODEL: an empty value");
  if (program_computes()) {
    check_refused({"uptrain", model, "--scale-by-parameter", "maybe", "-o", out},
                  "--scale-by-parameter: maybe is neither on nor off");
  }
  check_refused({"convert", model, out, "--kv-heads", "2", "--pool", "mean", "--pool", "first"},
                "--pool has 2 values, at most 1 allowed");
  check_refused({"convert", model, "-o=" + out, "--kv-heads", "2"}, "write -o " + out);
  CHECK(tree_of(directory.path()).empty());
}

TEST_CASE("after --, every word is an argument", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama_mha").string();
  const std::string out = (directory / "out").string();
  const std::string why = "follows --, after which no word is an option";
  check_refused({"convert", "--kv-heads", "2", "--", model, out, "--dry-run"}, "--dry-run " + why);
  check_refused({"inspect", "--layers", "--", model, "--layers"}, "--layers " + why);
  check_refused({"inspect", "--nothing", "--", model, "--nothing"}, "--nothing is not an option");
  check_refused({"convert", "--kv-head", "2", "--", model, out}, "did you mean --kv-heads?");
  check_refused({"convert", "--pool=median", "--", model, out},
                "--pool: \"median\" is none of mean, ");
  check_refused({"inspect", "--", model, out}, out + " was not expected: regroup inspect MODEL");
  CHECK(run_program({"inspect", "--", model}).exit_code == 0);
  if (program_computes()) {  // after a list of values, too
    const ProgramResult result = run_program({"eval", "--data", "nowhere.bin", "--", "--quiet"});
    CHECK_THAT(result.err, ContainsSubstring("--quiet: no such file"));
  }
  CHECK(tree_of(directory.path()).empty());
}

TEST_CASE("help is also a command", "[end_to_end]") {
  CHECK(run_program({"help"}).out == run_program({"--help"}).out);
  CHECK(run_program({"help", "convert"}).out == run_program({"convert", "--help"}).out);
  CHECK_THAT(run_program({"help", "convert"}).out, ContainsSubstring("--kv-heads"));
  if (run_program({"--help"}).out.find("bench") != std::string::npos) {
    CHECK(run_program({"help", "bench", "decode"}).out ==
          run_program({"bench", "decode", "--help"}).out);
  }
}

TEST_CASE("the program without LibTorch lists all commands of the whole program", "[end_to_end]") {
  const fs::path compute = fs::path(REGROUP_PROGRAM).parent_path() / "regroup-compute";
  if (!fs::exists(compute)) {
    SKIP("built without LibTorch: there is one program for all");
  }
  const ProgramResult whole =
      run_program({}, {"/bin/sh", "-c", "exec '" + compute.string() + "' --help"});
  CHECK(whole.out == run_program({"--help"}).out);
}

TEST_CASE("convert refuses options without effect on the model", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama_mha").string();
  const std::string out = (directory / "out").string();
  check_refused({"convert", model, out, "--kv-heads", "2", "--attention", "encoder"},
                "--attention encoder has no effect");
  check_refused({"convert", model, out, "--kv-heads", "2", "--attention", ""}, "--attention");
  check_refused({"convert", model, out, "--kv-budget", "0.67"}, "source's cache is 67%");
  check_refused({"convert", model, out, "--kv-budget", "25"}, "source's cache is 25%");
  check_refused({"convert", model, out, "--kv-heads", "9"}, "regroup expand repeats heads");
  check_refused({"convert", "--text", "a.txt", model, out, "--kv-heads", "2"},
                "SOURCE is missing, for --text took a.txt");
  check_refused({"verify", model, model}, "records no conversion");
  check_refused({"convert", model, out, "--kv-heads", "6", "--pool", "first"},
                "--pool has no effect");
  check_refused({"convert", model, out, "--kv-heads", "2", "--calibration", "stats"},
                "--calibration has no effect");
  check_refused({"convert", model, out, "--kv-heads", "2", "--refit-steps", "9"},
                "--refit-steps has no effect without --refit");
  check_refused({"convert", model, out, "--kv-heads", "2", "--skip-logits-check"},
                "--skip-logits-check has no effect");
  check_refused({"convert", model, out + ".gguf", "--to", "gguf", "--max-shard-size", "1MB"},
                "--max-shard-size has no effect");
  check_refused({"convert", model, out, "--kv-heads", "2", "--loader", "transformers"},
                "--loader transformers has no effect");
  check_refused({"convert", model, out, "--kv-heads", "2", "--loader", "none"},
                "--loader none has no effect");
  check_refused({"convert", golden("bloom").string(), out + ".gguf", "--loader", "transformers"},
                "single file");
  check_refused({"convert", model, out, "--dtype", "bf16", "--pool", "first"},
                "--pool has no effect without");
  CHECK(tree_of(directory.path()).empty());
}

TEST_CASE("the output's file extension selects the format or is refused", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama_mha").string();
  const fs::path file = directory / "x.gguf";
  REQUIRE(run_program({"convert", model, file.string(), "--kv-heads", "2", "--skip-logits-check"})
              .exit_code == 0);
  CHECK(fs::is_regular_file(file));
  CHECK(bytes_of_file(file).starts_with("GGUF"));
  const auto path = [&](const char* name) { return (directory / name).string(); };
  check_refused({"convert", model, path("y.gguf"), "--kv-heads", "2", "--to", "torch"}, "y.gguf");
  check_refused({"convert", model, path("y.safetensors"), "--kv-heads", "2"}, ".safetensors");
  check_refused({"convert", model, path("y.pt"), "--to", "gguf"}, "allowed is .gguf");
  check_refused({"expand", model, path("y.bin"), "--kv-heads", "6"}, ".bin");
  CHECK(tree_of(directory.path()).size() == 1);
}

TEST_CASE("convert accepts its output as argument or as -o", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama_mha").string();
  const std::string one = (directory / "one").string(), other = (directory / "other").string();
  REQUIRE(run_program({"convert", "-o", one, model, "--kv-heads", "2"}).exit_code == 0);
  REQUIRE(run_program({"convert", model, other, "--kv-heads", "2"}).exit_code == 0);
  CHECK(tree_of(one) == tree_of(other));
}

}  // namespace
}  // namespace regroup

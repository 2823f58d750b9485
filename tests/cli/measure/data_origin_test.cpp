// Commands that compute compare a token file's tokenizer with the model's.
#include "cli/measure/data_origin.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

// A tokenizer of the letters from "a" on whose ids begin with `first`, and go round.
std::string letters_from(int first) {
  constexpr int kLetters = 26;
  Json ids = Json::object();
  for (int i = 0; i < kLetters; ++i) {
    ids[std::string(1, static_cast<char>('a' + i))] = (first + i) % kLetters;
  }
  return Json({{"model", {{"type", "BPE"}, {"vocab", ids}, {"merges", Json::array()}}}}).dump();
}

// A model with such a tokenizer, a text, and its tokens by this and by another tokenizer.
struct OriginScene {
  TemporaryDirectory directory;
  std::string model = directory / "model", text = directory / "text.txt";
  std::string other_tokenizer = directory / "other.json";
  std::string own = directory / "own.bin", other = directory / "other.bin",
              silent = directory / "silent.bin";

  OriginScene() {
    fs::copy(golden("llama"), model);
    put_file(model + "/tokenizer.json", letters_from(0));
    put_file(other_tokenizer, letters_from(5));
    std::string words;
    for (int i = 0; i < 400; ++i) {
      words += static_cast<char>('a' + i * i % 26);
    }
    put_file(text, words);
    tokenize(model, own);
    tokenize(other_tokenizer, other);
    tokenize(model, silent);
    // What other tools write: an index without a record.
    const std::string index = bytes_of_file(directory / "silent.idx");
    put_file(directory / "silent.idx", index.substr(0, 34 + 12 + 2 * 8));
  }

  void tokenize(const std::string& tokenizer, const std::string& output) const {
    const ProgramResult run =
        run_program({"tokenize", text, "--tokenizer", tokenizer, "-o", output});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
};

}  // namespace

TEST_CASE("tokens of another tokenizer than the model's are refused", "[cli]") {
  if (!reads_tokenizer_json()) {
    SKIP("this build does not read tokenizer.json");
  }
  const OriginScene scene;
  const std::string out = scene.directory / "out";
  const std::vector<std::vector<std::string>> commands{
      {"eval", scene.model, "--context", "16", "--data"},
      {"calibrate", scene.model, "-o", out + ".safetensors", "--allow-any-text", "--context", "16",
       "--data"},
      {"convert", scene.model, out, "--kv-heads", "1", "--refit-steps", "1", "--allow-any-text",
       "--refit-context", "16", "--refit"},
      {"uptrain", scene.model, "-o", out, "--steps", "1", "--sequence", "16", "--batch", "1",
       "--dry-run", "--data"}};
  for (std::vector<std::string> command : commands) {
    CAPTURE(command);
    command.push_back(scene.other);
    const ProgramResult refused = run_program(command);
    CHECK(refused.exit_code == kExitUsage);
    CHECK(refused.one_line_of_error());
    CHECK_THAT(refused.err, ContainsSubstring("other.json") &&
                                ContainsSubstring("the model's is " + scene.model));
    CHECK(
        run_program({"sample", scene.model, "--prompt", "a", "--tokenizer", scene.other_tokenizer})
            .exit_code == kExitUsage);
    command.back() = scene.silent;
    const ProgramResult warned = run_program(command);
    CHECK(warned.exit_code == 0);
    CHECK_THAT(warned.err, ContainsSubstring("the file does not say"));
    fs::remove_all(out);
    fs::remove(out + ".safetensors");
    command.back() = scene.own;
    const ProgramResult fine = run_program(command);
    CHECK(fine.exit_code == 0);
    CHECK_THAT(fine.err, !ContainsSubstring("tokenizer"));
    fs::remove_all(out);
    fs::remove(out + ".safetensors");
  }
}

TEST_CASE("only the first of several ranks warns, quiet or not", "[cli]") {
  if (!reads_tokenizer_json()) {
    SKIP("this build does not read tokenizer.json");
  }
  const OriginScene scene;
  const std::vector<std::string> command{
      "uptrain",    scene.model, "-o",        scene.directory / "out",
      "--steps",    "1",         "--batch",   "1",
      "--sequence", "16",        "--dry-run", "--quiet",
      "--data",     scene.silent};
  const auto warned = [&](const char* rank) {
    const ProgramResult result =
        run_program(command, {"/usr/bin/env", rank, "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
                              "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"});
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    return result.err.find("warning: ") != std::string::npos;
  };
  CHECK(warned("RANK=0"));
  CHECK_FALSE(warned("RANK=1"));
}

TEST_CASE("a text that the model's own tokenizer read is not suspected", "[cli]") {
  if (!reads_tokenizer_json()) {
    SKIP("this build does not read tokenizer.json");
  }
  const OriginScene scene;
  const ProgramResult done =
      run_program({"convert", scene.model, scene.directory / "out", "--kv-budget", "50%", "--text",
                   scene.text, "--allow-any-text", "--refit-context", "16", "--refit-batch", "1",
                   "--distill-steps", "2", "--refit-steps", "2", "--refit-tokens", "128"});
  CAPTURE(done.err);
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.err, ContainsSubstring("measure") && !ContainsSubstring("of another tokenizer"));
}

TEST_CASE("a tokenizer given for a text is compared with the model's, too", "[cli]") {
  if (!reads_tokenizer_json()) {
    SKIP("this build does not read tokenizer.json");
  }
  const OriginScene scene;
  const ProgramResult refused = run_program({"eval", scene.model, "--context", "16", "--text",
                                             scene.text, "--tokenizer", scene.other_tokenizer});
  CHECK(refused.exit_code == kExitUsage);
  CHECK_THAT(refused.err, ContainsSubstring("other.json"));
}

}  // namespace regroup

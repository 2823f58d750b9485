// Distillation by `regroup convert --text`: what is recorded, refused, and resumed.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/converted_text.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a distilled result is recorded, and verified by its checksums", "[uptrain]") {
  const char* pool = GENERATE("mean", "lowrank");
  CAPTURE(pool);
  const TextConversion files;
  const ProgramResult done =
      files.convert({"--tokenizer", "bytes", "--json", "--distill-steps", "30", "--pool", pool});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  const Json measured = done.json()["distill"];
  CHECK(measured["measure"] == "kl_divergence");
  CHECK(measured["kept"] == (measured["after"] < measured["before"]));
  const auto output = std::filesystem::path(files.output);
  const Json record = Json::parse(bytes_of_file(output / "config.json"))["regroup"];
  CHECK(record["distilled"] == measured);
  CHECK(record["distill"]["steps"] == 30);
  CHECK(record["held_out"] == done.json()["held_out"]);
  const ProgramResult inspected = run_program({"inspect", files.output});
  CHECK_THAT(inspected.out, ContainsSubstring("30 steps of 2 windows of 32 tokens"));
  const ProgramResult verified = run_program({"verify", files.model, files.output, "--json"});
  CAPTURE(verified.out);
  CHECK(verified.exit_code == 0);
  const auto weights = output / "model.safetensors";
  std::string bytes = bytes_of_file(weights);
  const std::size_t place = bytes.size() - 1;
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
  put_file(weights, bytes);
  CHECK(run_program({"verify", files.model, files.output}).exit_code == 5);
}

TEST_CASE("distillation trains on as many tokens as the effort says", "[uptrain]") {
  const TextConversion files;
  const ProgramResult done =
      run_program({"convert", "--allow-any-text", files.model, files.output, "--kv-heads", "1",
                   "--text", files.text, "--tokenizer", "bytes", "--effort", "quick",
                   "--refit-context", "256", "--refit-batch", "4"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  const Json config =
      Json::parse(bytes_of_file(std::filesystem::path(files.output) / "config.json"));
  CHECK(config["regroup"]["distill"]["steps"] == 32);  // 32,768 / (4 * 256)
  const auto planned = [&](const char* own_text) {
    return run_program({"convert", "--allow-any-text", files.model, files.output + "2",
                        "--kv-heads", "1", "--text", files.text, "--tokenizer", "bytes", "--effort",
                        "4M", "--own-text", own_text, "--dry-run", "--refit-context", "256",
                        "--refit-batch", "4"})
        .err;
  };
  CHECK_THAT(planned("0"), ContainsSubstring("distillation: 4096 steps") &&
                               ContainsSubstring("distillation reads the text"));
  CHECK_THAT(planned("0.5"), ContainsSubstring("the text is shorter than its share"));
}

TEST_CASE("the rate of distillation and the weight of attentions are those asked for",
          "[uptrain]") {
  const TextConversion files;
  const ProgramResult done =
      files.convert({"--tokenizer", "bytes", "--json", "--distill-steps", "2", "--distill-lr",
                     "0.001", "--distill-attention", "3"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(done.json()["distill"]["relative_learning_rate"] == 0.001);
  CHECK(done.json()["distill"]["attention_weight"] == 3.0);
}

TEST_CASE("a result of other positions is neither refitted nor compared with the mean",
          "[uptrain]") {
  const TextConversion files;
  const auto convert = [&](const char* positions, const char* effort, const char* mode) {
    return run_program({"convert", "--allow-any-text", files.model,
                        files.output + positions + effort, "--kv-heads", "1", "--text", files.text,
                        "--tokenizer", "bytes", "--refit-context", "32", "--distill-steps", "1",
                        "--positions", positions, "--effort", effort, mode});
  };
  const auto names = [&](const char* positions) {
    const ProgramResult done = convert(positions, "quick", "--json");
    CAPTURE(done.err);
    REQUIRE(done.exit_code == 0);
    std::vector<std::string> found;
    const Json report = done.json();
    for (const Json& model : report["held_out"]["models"]) {
      found.push_back(model["model"]);
    }
    return found;
  };
  CHECK(names("keep") == std::vector<std::string>{"source", "mean", "result"});
  CHECK(names("alibi") == std::vector<std::string>{"source", "result"});
  CHECK_THAT(convert("keep", "thorough", "--dry-run").err, ContainsSubstring("refitting: 300"));
  CHECK_THAT(convert("alibi", "thorough", "--dry-run").err, !ContainsSubstring("refit"));
  CHECK_THAT(convert("alibi", "thorough", "--refit-steps=9").err,
             ContainsSubstring("--refit-steps: with other positions"));
}

TEST_CASE("a result that cannot be distilled is made without, or refused if asked for",
          "[uptrain]") {
  const TextConversion files;
  const std::vector<std::string> quick{"convert",
                                       "--allow-any-text",
                                       files.model,
                                       files.output,
                                       "--kv-heads",
                                       "1",
                                       "--text",
                                       files.text,
                                       "--tokenizer",
                                       "bytes",
                                       "--refit-steps",
                                       "5",
                                       "--refit-context",
                                       "32",
                                       "--to",
                                       "torch"};
  std::vector<std::string> asked = quick;
  asked.insert(asked.end(), {"--distill-steps", "5"});
  const ProgramResult refused = run_program(asked);
  CHECK(refused.exit_code == kExitUsage);
  CHECK(refused.one_line_of_error());
  CHECK_THAT(refused.err, ContainsSubstring("safetensors"));
  const ProgramResult done = run_program(quick);
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.err, ContainsSubstring("warning: --text: no distillation") &&
                           ContainsSubstring("regroup convert RESULT OUTPUT --to torch"));
}

TEST_CASE("a GGUF result is distilled as one in safetensors is", "[uptrain]") {
  TextConversion files;
  files.train();
  const std::vector<std::string> distilled{
      "--tokenizer", "bytes",        "--json", "--pool",     "mean", "--distill-steps",
      "40",          "--distill-lr", "0.02",   "--own-text", "0"};
  const Json expected = files.convert(distilled).json();
  REQUIRE(expected["distill"]["kept"] == true);
  REQUIRE(loss_of(expected, 2) < loss_of(expected, 1) - 0.1);
  SECTION("from safetensors") {}
  SECTION("from GGUF") {
    const std::string file = files.model + ".gguf";
    REQUIRE(run_program({"convert", files.model, file}).exit_code == 0);
    files.model = file;
  }
  files.output += ".gguf";
  const ProgramResult done = files.convert(distilled);
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  const Json report = done.json();
  CHECK(report["distill"]["kept"] == true);
  // The same steps; q and k have another order of features, so that the last bits of sums differ.
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK_THAT(loss_of(report, row), Catch::Matchers::WithinAbs(loss_of(expected, row), 1e-3));
  }
  CHECK(run_program({"verify", files.model, files.output}).exit_code == 0);
}

// Runs a conversion until a step of its distillation is done, and asks it to stop.
ProgramResult stopped_while_distilling(std::vector<std::string> arguments) {
  arguments.emplace_back("--json-progress");
  RunningProgram program(arguments);
  while (program.err_so_far().find("\"loss ") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  program.send(SIGINT);
  return program.wait();
}

TEST_CASE("a distillation that was stopped goes on to the same result", "[uptrain]") {
  const TextConversion files;
  const auto arguments = [&](const std::string& output) {
    return std::vector<std::string>{
        "convert",  files.model,      output,  "--kv-heads",      "1",    "--text",
        files.text, "--tokenizer",    "bytes", "--refit-context", "32",   "--distill-steps",
        "300",      "--refit-tokens", "2048",  "--distill-lr",    "0.01", "--allow-any-text"};
  };
  const ProgramResult whole = run_program(arguments(files.output + "-whole"));
  CAPTURE(whole.err);
  REQUIRE(whole.exit_code == 0);
  auto command = arguments(files.output);
  const ProgramResult stopped = stopped_while_distilling(command);
  CAPTURE(stopped.err);
  const std::filesystem::path run = files.output + ".run";
  REQUIRE(stopped.exit_code == kExitStateSaved);
  CHECK_THAT(stopped.err, ContainsSubstring("of 300 of distillation; the same command with --res"));
  CHECK(!std::filesystem::exists(files.output));
  CHECK(std::filesystem::exists(run / "own.bin"));
  const ProgramResult again = run_program(command);
  CHECK(again.exit_code == kExitUsage);
  CHECK_THAT(again.err, ContainsSubstring("holds a run already"));
  command.emplace_back("--resume");
  auto other = command;
  *(std::ranges::find(other, "--refit-tokens") + 1) = "1024";
  const ProgramResult refused = run_program(other);
  CHECK(refused.exit_code == kExitUsage);
  CHECK_THAT(refused.err, ContainsSubstring("text was"));
  auto moved = command;
  moved.insert(moved.end(), {"--positions", "alibi"});
  const ProgramResult other_model = run_program(moved);
  CHECK(other_model.exit_code == kExitUsage);
  CHECK_THAT(other_model.err, ContainsSubstring("positions was"));
  const ProgramResult resumed = run_program(command);
  CAPTURE(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK_THAT(resumed.err, !ContainsSubstring("sample:"));
  CHECK(!std::filesystem::exists(run));
  const ProgramResult diff = run_program({"diff", files.output + "-whole", files.output});
  CAPTURE(diff.out);
  CHECK(diff.exit_code == 0);
  auto nothing = arguments(files.output + "-new");
  nothing.emplace_back("--resume");
  CHECK_THAT(run_program(nothing).err, ContainsSubstring("there is no run to resume"));
}

}  // namespace
}  // namespace regroup

// `regroup uptrain` and `regroup eval` as programs: signals, kills, exit codes.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/run/uptrain_arguments.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("SIGTERM and SIGHUP save the state and a resumed run gives the same result",
          "[uptrain]") {
  const int signal_number = GENERATE(SIGTERM, SIGHUP);
  const TemporaryDirectory directory;
  REQUIRE(run_program(uptrain_arguments(directory, "whole")).exit_code == 0);
  const auto arguments = uptrain_arguments(directory, "stopped");
  RunningProgram program(arguments);
  wait_for_steps(directory / "stopped.run", 33);
  program.send(signal_number);
  const ProgramResult stopped = program.wait();
  CHECK(stopped.exit_code == kExitStateSaved);
  CHECK(stopped.err.find("--resume") != std::string::npos);
  CHECK_FALSE(fs::exists(directory / "stopped"));
  const ProgramResult resumed = run_program(with(arguments, "--resume"));
  CHECK(resumed.exit_code == 0);
  CHECK(tree_of(directory / "stopped") == tree_of(directory / "whole"));
}

TEST_CASE("with --json-progress every line of the metrics is printed", "[uptrain]") {
  const TemporaryDirectory directory;
  const ProgramResult result =
      run_program(with(uptrain_arguments(directory, "out"), "--json-progress"));
  REQUIRE(result.exit_code == 0);
  std::string steps;
  std::istringstream text(result.err);
  for (std::string line; std::getline(text, line);) {
    steps += line.starts_with("{\"step\":") ? line + "\n" : "";
  }
  CHECK(steps == bytes_of_file(directory / "out.run/metrics.jsonl"));
}

TEST_CASE("training continues if its messages cannot be written", "[uptrain]") {
  const TemporaryDirectory directory;
  REQUIRE(run_program(uptrain_arguments(directory, "whole")).exit_code == 0);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  ::close(ends[0]);
  const std::string to_pipe = "exec \"$@\" 2>&" + std::to_string(ends[1]);
  const ProgramResult alone =
      run_program(uptrain_arguments(directory, "alone"), {"/bin/sh", "-c", to_pipe, "sh"});
  ::close(ends[1]);
  CHECK(alone.exit_code == 0);
  CHECK(tree_of(directory / "alone") == tree_of(directory / "whole"));
}

TEST_CASE("where too few files can be open, nothing is left or the run can be resumed",
          "[uptrain]") {
  const TemporaryDirectory directory;
  std::vector<std::string> arguments = uptrain_arguments(directory, "out");
  std::ranges::replace(arguments, std::string("6000"), std::string("40"));  // two steps
  for (int most = 6; most < 16; ++most) {  // whichever file is the first that cannot be opened
    const ProgramResult result = run_program(
        arguments, {"sh", "-c", "ulimit -n " + std::to_string(most) + "; exec \"$0\" \"$@\""});
    CAPTURE(most, result.err, result.exit_code);
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      left.push_back(entry.path().filename().string());
    }
    CAPTURE(left);
    CHECK(std::ranges::none_of(
        left, [](const std::string& name) { return name.find("partial") != std::string::npos; }));
    const bool begun = fs::exists(directory / "out.run");
    CHECK((!begun || fs::exists(directory / "out.run/run.json")));
    if (result.exit_code != 0) {
      CHECK(run_program(begun ? with(arguments, "--resume=auto") : arguments).exit_code == 0);
    }
    CHECK(fs::exists(directory / "out"));
    fs::remove_all(directory / "out");
    fs::remove_all(directory / "out.run");
  }
}

TEST_CASE("a run killed at any time resumes to the same result", "[uptrain]") {
  const TemporaryDirectory directory;
  REQUIRE(run_program(uptrain_arguments(directory, "whole")).exit_code == 0);
  const auto arguments = uptrain_arguments(directory, "killed");
  bool begun = false;
  for (const std::ptrdiff_t steps : {1, 19, 20, 47, 90, 151}) {
    CAPTURE(steps);
    // A state may not have been saved yet.
    RunningProgram program(begun ? with(arguments, "--resume=auto") : arguments);
    wait_for_steps(directory / "killed.run", steps);
    program.send(SIGKILL);
    CHECK(program.wait().exit_code == 128 + SIGKILL);
    CHECK_FALSE(fs::exists(directory / "killed"));
    begun = true;
  }
  CHECK(run_program(with(arguments, "--resume")).exit_code == 0);
  CHECK(tree_of(directory / "killed") == tree_of(directory / "whole"));
}

TEST_CASE("uptrain --resume=auto starts or resumes a run and leaves a complete one unchanged",
          "[uptrain]") {
  const TemporaryDirectory directory;
  REQUIRE(run_program(uptrain_arguments(directory, "whole")).exit_code == 0);
  const auto arguments = with(uptrain_arguments(directory, "again"), "--resume=auto");
  RunningProgram program(arguments);
  wait_for_steps(directory / "again.run", 33);
  program.send(SIGTERM);
  CHECK(program.wait().exit_code == kExitStateSaved);
  CHECK(run_program(arguments).exit_code == 0);
  const auto complete = tree_of(directory / "again");
  CHECK(complete == tree_of(directory / "whole"));
  const ProgramResult third = run_program(arguments);
  CHECK(third.exit_code == 0);
  CHECK(third.err.find("is complete") != std::string::npos);
  CHECK(tree_of(directory / "again") == complete);
}

TEST_CASE("invalid requests end with one line and their exit code", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto good = uptrain_arguments(directory, "out");
  const auto check = [&](std::vector<std::string> arguments, int exit_code,
                         const std::string& word) {
    const ProgramResult result = run_program(arguments);
    CAPTURE(result.err, arguments);
    CHECK(result.exit_code == exit_code);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find(word) != std::string::npos);
    CHECK_FALSE(fs::exists(directory / "out"));
    CHECK_FALSE(fs::exists(directory / "out.run"));
  };
  const auto changed = [&](std::size_t at, const std::string& value) {
    auto arguments = good;
    arguments[at] = value;
    return arguments;
  };
  check(changed(5, "0"), 2, "--alpha: \"0\"");
  check(changed(1, (directory / "none").string()), 3, "none");
  check(changed(3, (directory / "none.bin").string()), 3, "none.bin");
  check(changed(9, "4000"), 3, "3000 tokens");
  check(changed(1, (golden("gguf") / "llama.gguf").string()), 2,
        "llama.gguf DIRECTORY --to safetensors --dtype fp32");
  check({"bench", "train", good[1], "--data", good[3], "--sequence", "0"}, 2, "--context: \"0\"");
  check({"bench", "train", good[1], "--data", good[3], "--moments", "bf16", "--optimizer",
         "adafactor"},
        2, "--moments has no effect without --optimizer adamw");
  check(with(good, "--resume"), 2, "no run to resume");
  check(with(good, "--resume=perhaps"), 2, "perhaps");
  check(with(good, "--no-such-option"), 2, "no-such-option");
  put_file(directory / "short.bin", bytes_of_numbers(learnable_text(2000, 64)));
  check({"eval", golden("llama").string(), "--data", directory / "short.bin", "--context", "2000",
         "--quiet"},
        3, "2,001");
  check({"eval", golden("llama").string(), "--data", good[3], "--device", "tpu"}, 2, "tpu");
}

TEST_CASE("commands that read tokens refuse text and name regroup tokenize", "[uptrain]") {
  const TemporaryDirectory directory;
  std::string text;
  for (int line = 0; line < 100; ++line) {
    text += "To be, or not to be: that is the question\n";
  }
  put_file(directory / "corpus.txt", text);
  const std::string corpus = (directory / "corpus.txt").string();
  const std::string model = (directory / "model").string();
  fs::copy(golden("llama_mha"), model);
  put_file(directory / "model/tokenizer.json", "{}");  // ids of a text are not compared with it
  const std::string out = (directory / "out").string();
  const std::vector<std::vector<std::string>> commands{
      {"eval", model, "--data", corpus},
      {"calibrate", model, "--data", corpus, "-o", out},
      {"convert", model, out, "--kv-heads", "3", "--refit", corpus},
      {"convert", model, out, "--kv-budget", "50%", "--kv-budget-data", corpus},
      {"uptrain", model, "--data", corpus, "--alpha", "1", "--pretrain-steps", "3", "-o", out},
      {"teach", model, "--data", corpus, "-o", out},
      {"bench", "train", model, "--data", corpus},
      {"verify", model, model, "--logits", "--data", corpus}};
  for (const std::vector<std::string>& arguments : commands) {
    const ProgramResult result = run_program(arguments);
    CAPTURE(arguments, result.err);
    CHECK(result.exit_code == 3);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find("is text, token ids are needed: regroup tokenize") != std::string::npos);
    CHECK_FALSE(fs::exists(out));
  }
}

TEST_CASE("verify --logits compares the predictions of a result that was trained since",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string source = golden("llama_mha").string();
  const std::string converted = (directory / "converted").string();
  REQUIRE(run_program({"convert", source, converted, "--kv-heads", "1"}).exit_code == 0);
  put_file(directory / "training.bin", bytes_of_numbers(learnable_text(3000, 64)));
  REQUIRE(run_program({"uptrain", converted, "--data", (directory / "training.bin").string(),
                       "--steps", "2", "--lr", "1e-3", "--sequence", "12", "--batch", "2", "-o",
                       (directory / "trained").string()})
              .exit_code == 0);
  const std::vector<std::string> verify{"verify", source, (directory / "trained").string()};

  const ProgramResult whole = run_program(verify);
  CHECK(whole.exit_code == 2);
  CHECK(whole.err.find("--logits compares its predictions") != std::string::npos);
  const fs::path page = directory / "page.html";
  const ProgramResult result =
      run_program(with_all(verify, {"--logits", "--json", "--html", page.string()}));
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.find("only its predictions are compared") != std::string::npos);
  CHECK(result.json()["passed"].is_null());
  CHECK(result.json()["logits"]["kl"] > 0.0);
  const std::string text = read_text(page, 1 << 20);
  CHECK(text.find("Predictions") != std::string::npos);
  CHECK(text.find("Verdict") == std::string::npos);
  const ProgramResult idle =
      run_program(with_all(verify, {"--logits", "--calibration", "statistics"}));
  CHECK(idle.exit_code == 2);
  CHECK(idle.err.find("--calibration") != std::string::npos);
}

TEST_CASE("a dry run shows the plan and writes no files", "[uptrain]") {
  const TemporaryDirectory directory;
  auto arguments = uptrain_arguments(directory, "out");
  arguments.insert(arguments.end(), {"--dry-run", "--json"});
  const ProgramResult result = run_program(arguments);
  REQUIRE(result.exit_code == 0);
  CHECK(result.json()["steps"] == 300);
  CHECK(result.json()["tokens"] == 300 * 24);
  CHECK(tree_of(directory.path()).size() == 1);
  arguments.insert(arguments.end(), {"--eval-data", arguments[3]});
  CHECK_THAT(run_program(arguments).json()["notes"].dump(),
             ContainsSubstring("which the run trains on"));
}

TEST_CASE("options can be given in a config file", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto arguments = uptrain_arguments(directory, "out");
  put_file(directory / "run.toml",
           "[uptrain]\nalpha = 0.01\npretrain-steps = 4000\n"
           "sequence = 12\ndata = [\"" +
               arguments[3] + "\"]\n");
  const auto run = [&](const std::string& file) {
    return run_program({"uptrain", arguments[1], "--output", arguments[13], "--config", file,
                        "--dry-run", "--json"});
  };
  const ProgramResult result = run((directory / "run.toml").string());
  REQUIRE(result.exit_code == 0);
  CHECK(result.json()["steps"] == 40);
  put_file(directory / "wrong.toml", "[uptrain]\nalhpa = 0.01\n");
  CHECK(run((directory / "wrong.toml").string()).exit_code == 2);
  put_file(directory / "bare.toml", "alpha = 0.01\n");
  CHECK_THAT(
      run((directory / "bare.toml").string()).err,
      ContainsSubstring("\"alpha\" is an option of uptrain: write [uptrain] on a line above"));
}

TEST_CASE("eval writes the logits of transformers and reports the loss as JSON", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase subject = load_golden_case("bloom_12");
  const at::Tensor flat = subject.tokens.flatten().contiguous();
  const auto* ids = flat.const_data_ptr<std::int64_t>();
  put_file(directory / "tokens",
           bytes_of_numbers(std::vector<std::uint16_t>(ids, ids + flat.numel())));
  const std::vector<std::string> arguments{"eval",      golden("bloom_12").string(),
                                           "--data",    (directory / "tokens").string(),
                                           "--context", std::to_string(subject.tokens.size(1))};
  auto writing = arguments;
  writing.insert(writing.end(), {"--write-logits", (directory / "logits.safetensors").string()});
  REQUIRE(run_program(writing).exit_code == 0);
  CHECK(largest_difference(read_tensor(directory / "logits.safetensors", "logits"),
                           subject.logits) <= 1e-4);
  const Json report = run_program(with(arguments, "--json")).json();
  for (const char* key :
       {"loss", "perplexity", "tokens", "context", "seconds", "tokens_per_second"}) {
    CHECK(report.contains(key));
  }
  CHECK(report["warnings"].empty());
}

TEST_CASE(
    "eval warns of windows longer than the context length and does not choose them by default",
    "[uptrain]") {
  const TemporaryDirectory directory;
  TinyModel model = golden_model("llama");
  model.set("max_position_embeddings", "16");
  const std::string path = put_model(directory / "model", model).string();
  put_file(directory / "tokens", bytes_of_numbers(std::vector<std::uint16_t>(100, 3)));
  const std::vector<std::string> usual{"eval", path, "--data", (directory / "tokens").string(),
                                       "--json"};
  CHECK(run_program(usual).json()["context"] == 16);
  CHECK(run_program(usual).json()["warnings"].empty());
  auto longer = usual;
  longer.insert(longer.end(), {"--context", "16,32"});
  const ProgramResult result = run_program(longer);
  CHECK(result.json()["warnings"].size() == 1);
  CHECK(result.err.find("warning: " + path + ": windows of 32 tokens, the config declares 16") !=
        std::string::npos);
}

TEST_CASE("eval reports the objective of models with an encoder", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string data = (directory / "tokens").string();
  put_file(data, bytes_of_numbers(learnable_text(200, 40)));
  const auto eval = [&](const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", golden(name).string(), "--data", data, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  CHECK(eval("t5", {"--context", "21"}).json()["objective"] == "continuation");
  CHECK(eval("t5", {"--context", "21"}).json()["tokens"] == 9 * 11);
  const Json spans =
      eval("t5", {"--context", "21", "--objective", "span-corruption", "--first-sentinel", "39"})
          .json();
  CHECK(spans["objective"] == "span-corruption");
  CHECK(spans["tokens"] == 9 * (3 + 1 + 1));  // a span of three, its sentinel and the end token
  CHECK(eval("bert", {"--mask-token", "3"}).json()["objective"] == "masked-tokens");
  CHECK(eval("bert", {"--mask-token", "3"}).json()["loss"] !=
        eval("bert", {"--mask-token", "3", "--seed", "1"}).json()["loss"]);
  CHECK(eval("bert", {}).exit_code == kExitUsage);
  CHECK(eval("t5", {"--mask-token", "3"}).exit_code == kExitUsage);
  CHECK(eval("t5", {"--objective", "span-corruption"}).exit_code == kExitUsage);
  CHECK(tree_of(directory.path()).size() == 1);
}

TEST_CASE("eval has a row for each context including impossible ones", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string data = (directory / "tokens").string();
  put_file(data, bytes_of_numbers(learnable_text(200, 40)));
  const auto eval = [&](const char* name, const std::string& contexts,
                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"eval", golden(name).string(), "--data",
                                       data,   "--context",           contexts};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  const Json rows = eval("gpt2", "4,16,17", {"--json"}).json()["contexts"];  // 16 positions
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["context"] == 4);
  CHECK(rows[0]["loss"] == eval("gpt2", "4", {"--json"}).json()["loss"]);
  CHECK(rows[1]["loss"] == eval("gpt2", "16", {"--json"}).json()["loss"]);
  CHECK(rows[2]["context"] == 17);
  CHECK_FALSE(rows[2].contains("loss"));
  CHECK(rows[2]["not_possible"].get<std::string>().find("16") != std::string::npos);
  const std::string table = eval("gpt2", "4,16,17").out;
  CHECK(table.find("perplexity") != std::string::npos);
  CHECK(table.find("17: not possible: learned positions for 16 only") != std::string::npos);
  // Rotary and ALiBi positions are not limited.
  CHECK(eval("bloom", "8,64", {"--json"}).json()["contexts"][1].contains("loss"));
  CHECK(eval("llama", "8,100", {"--json"}).json()["contexts"][1].contains("loss"));
  CHECK(eval("gpt2", "17,18").exit_code == kExitUsage);
  CHECK(eval("gpt2", "17").exit_code == kExitUsage);
  CHECK(eval("llama", "8,200").exit_code == kExitBadInput);
  CHECK(eval("llama", "8,16", {"--write-logits", (directory / "logits").string()}).exit_code ==
        kExitUsage);
}

TEST_CASE("the example recipes are accepted", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string data = (directory / "tokens").string();
  put_file(data, bytes_of_numbers(learnable_text(20000, 36)));
  const fs::path recipes = fs::path(REGROUP_TESTS_DIR) / ".." / "examples" / "recipes";
  int found = 0;
  for (const auto& recipe : fs::directory_iterator(recipes)) {
    const std::string name = recipe.path().stem().string();
    CAPTURE(name);
    const bool for_t5 = name == "t5-pretraining";
    std::vector<std::string> arguments{"--config",  recipe.path().string(),
                                       "uptrain",   golden(for_t5 ? "t5" : "llama").string(),
                                       "--data",    data,
                                       "--output",  (directory / "out").string(),
                                       "--dry-run", "--json"};
    // The command line takes precedence. These fixtures do not support long sequences.
    arguments.insert(arguments.end(),
                     {"--sequence", "20", name == "little-memory" ? "--steps" : "--alpha",
                      name == "little-memory" ? "10" : "1e-7"});
    if (for_t5) {
      arguments.insert(arguments.end(), {"--first-sentinel", "39", "--end-token", "2"});
    }
    const ProgramResult result = run_program(arguments);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(result.json()["recipe"]["sequence_length"] == 20);
    CHECK(result.json()["recipe"]["accumulation"] > 1);
    ++found;
  }
  CHECK(found >= 4);
}

TEST_CASE("uptrain reads all its options from a file", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string data = (directory / "tokens").string();
  put_file(data, bytes_of_numbers(learnable_text(400, 36)));
  put_file(directory / "run.toml",
           "[uptrain]\n"
           "steps = 2\nsequence = 21\nbatch = 2\n"
           "train = \"kv\"\noptimizer = \"adafactor\"\nscale-by-parameter = false\n"
           "schedule = \"inverse-sqrt\"\nlr = 0.5\nstart-step = 40000\n"
           "first-sentinel = 39\nend-token = 2\n"
           "teacher-weight = 0.25\ntemperature = 2\nteacher-dtype = \"bf16\"\n"
           "teacher = \"" +
               golden("t5").string() + "\"\n");
  const ProgramResult result = run_program(
      {"--config", (directory / "run.toml").string(), "uptrain", golden("t5").string(), "--data",
       data, "--output", (directory / "out").string(), "--dry-run", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const Json recipe = result.json()["recipe"];
  CHECK(recipe["trained"] == "kv");
  CHECK(recipe["optimizer"] == "adafactor");
  CHECK(recipe["scale_by_parameter"] == false);
  CHECK(recipe["schedule"] == "inverse-sqrt");
  CHECK(recipe["learning_rate"] == 0.5);
  CHECK(recipe["start_step"] == 40000);
  CHECK(recipe["warmup_steps"] == 0);
  CHECK(recipe["objective"] == "span-corruption");
  CHECK(recipe["first_sentinel"] == 39);
  CHECK(recipe["end_token"] == 2);
  CHECK(recipe["teacher_weight"] == 0.25);
  CHECK(recipe["teacher_temperature"] == 2.0);
  CHECK(recipe["teacher_precision"] == "bf16");
  CHECK(recipe["teacher"].is_string());
}

TEST_CASE("either all data files have weights or none", "[uptrain]") {
  const TemporaryDirectory directory;
  for (const char* name : {"a", "b", "odd:0.5"}) {
    put_file(directory / name, bytes_of_numbers(learnable_text(400, 64)));
  }
  const auto plan = [&](const std::string& one, const std::string& other) {
    return run_program({"uptrain", golden("llama").string(), "--data", (directory / one).string(),
                        (directory / other).string(), "--steps", "10", "--sequence", "12",
                        "--output", (directory / "out").string(), "--dry-run", "--json"});
  };
  const Json mixed = plan("a:3", "b:1").json();
  CHECK(mixed["data"][0]["share"] == 0.75);
  CHECK(mixed["data"][1]["share"] == 0.25);
  CHECK(mixed["data"][1]["epochs"].get<double>() == 20.0 / 33);
  CHECK(mixed["recipe"]["data_weights"] == Json::array({3.0, 1.0}));
  CHECK(mixed["state_bytes"].get<double>() == 3 * 4 * mixed["parameters"].get<double>());
  CHECK(mixed["memory_available"].get<double>() > 0);
  const Json plain = plan("a", "odd:0.5").json();  // a file whose name ends like a weight
  CHECK(plain["data"][0]["share"] == 0.5);
  CHECK_FALSE(plain["recipe"].contains("data_weights"));
  CHECK(plan("a:3", "b").exit_code == kExitUsage);
  CHECK(plan("a:3", "b:0").exit_code == kExitUsage);
}

TEST_CASE("a resumed run with a forgotten or a new option is refused and stays as it is",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const auto plain = uptrain_arguments(directory, "out");
  const auto taught = with_all(plain, {"--teacher", golden("llama_bf16").string()});
  const bool forgotten = GENERATE(true, false);
  const auto& right = forgotten ? taught : plain;
  const auto& wrong = forgotten ? plain : taught;
  {
    RunningProgram program(right);
    wait_for_steps(directory / "out.run", 25);
    program.send(SIGINT);
    REQUIRE(program.wait().exit_code == kExitStateSaved);
  }
  const auto before = tree_of(directory / "out.run");
  for (const char* option : {"--resume", "--resume=auto"}) {
    const ProgramResult refused = run_program(with(wrong, option));
    CAPTURE(refused.err);
    CHECK(refused.exit_code == kExitUsage);
    CHECK(refused.err.find("teacher was") != std::string::npos);
    CHECK(refused.err.find("(--teacher)") != std::string::npos);
    CHECK(tree_of(directory / "out.run") == before);
  }
  CHECK(run_program(with(right, "--resume")).exit_code == 0);
}

TEST_CASE("a run without a state is not taken up silently", "[uptrain]") {
  const TemporaryDirectory directory;
  auto arguments = with_all(uptrain_arguments(directory, "out"), {"--lr", "2e-4"});
  std::ranges::replace(arguments, std::string("20"),
                       std::string("300"));  // no state before the end
  {
    RunningProgram program(arguments);
    wait_for_steps(directory / "out.run", 1);
    program.send(SIGKILL);
    program.wait();
  }
  const ProgramResult refused = run_program(with_all(arguments, {"--resume", "--quiet"}));
  CHECK(refused.exit_code == kExitUsage);
  CHECK(refused.one_line_of_error());
  CHECK(refused.err.find("no state to resume from") != std::string::npos);
  CHECK(run_program(with(arguments, "--resume=auto")).exit_code == 0);
}

TEST_CASE("a signal ends an evaluation in the middle of a long window", "[uptrain]") {
  const TemporaryDirectory directory;
  put_file(directory / "text.bin", bytes_of_numbers(learnable_text(300'000, 64)));
  fs::copy(golden("llama"), directory / "model");
  Json config = Json::parse(bytes_of_file(directory / "model" / "config.json"));
  config["max_position_embeddings"] = 200'000;  // else a warning comes first
  put_file(directory / "model" / "config.json", config.dump());
  const int signal_number = GENERATE(SIGINT, SIGTERM);
  RunningProgram program({"eval", (directory / "model").string(), "--data",
                          (directory / "text.bin").string(), "--context", "200000", "--quiet"});
  std::this_thread::sleep_for(std::chrono::seconds(3));  // a layer takes a minute
  const auto begin = std::chrono::steady_clock::now();
  program.send(signal_number);
  const ProgramResult result = program.wait();
  CHECK(result.exit_code == 128 + signal_number);
  CHECK(result.one_line_of_error());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

TEST_CASE("uptrain warns of numbers that are probably slips", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto planned = with_all(with_value(uptrain_arguments(directory, "out"), "--alpha", "5"),
                                {"--lr", "5", "--dry-run", "--json"});
  const ProgramResult result = run_program(planned);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.err, ContainsSubstring("warning: --alpha 5 trains") &&
                             ContainsSubstring("warning: --lr 5 is far above"));
  CHECK(Json::parse(result.out)["warnings"].size() == 2);
}

}  // namespace regroup

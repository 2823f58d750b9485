// `regroup convert --text` as a program: from a model and a text to the table of losses.
#include <algorithm>

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

}  // namespace

TEST_CASE("convert --text solves, refits and compares on held-out text", "[uptrain]") {
  const TextConversion files;
  const ProgramResult done = files.convert({"--tokenizer", "bytes", "--json"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  const Json report = done.json();
  CHECK(report["pool"] == "lowrank");
  CHECK(report["refit"]["steps"] == 20);
  CHECK(report["refit"]["learning_rate"] == "auto");
  for (const Json& layer : report["layers"]) {
    CHECK(layer["refit_learning_rate"] > 0.0);
    CHECK(layer["output_error_after_refit"] < layer["output_error_before_refit"]);
  }
  REQUIRE(report["held_out"]["models"].size() == 3);
  CHECK(report["held_out"]["models"][0]["cosine"] > 0.999999);
  CHECK(report["held_out"]["models"][2]["cosine"] > report["held_out"]["models"][1]["cosine"]);
  CHECK(report["warnings"].empty());
  const auto output = std::filesystem::path(files.output);
  const Json config = Json::parse(bytes_of_file(output / "config.json"));
  CHECK(config["regroup"]["held_out"] == report["held_out"]);
  CHECK_THAT(bytes_of_file(output / "README.md"), ContainsSubstring("held-out tokens"));
  // The command removes its temporary files.
  CHECK(tree_of(files.directory.path() / "out").size() > 0);
  for (const auto& entry : std::filesystem::directory_iterator(files.directory.path())) {
    CHECK_THAT(entry.path().filename().string(), !ContainsSubstring("partial"));
  }
  CHECK(run_program({"verify", files.model, files.output}).exit_code == 0);
}

TEST_CASE("the source writes its share of the text, and answers are compared on it", "[uptrain]") {
  const TextConversion files;
  const ProgramResult done = files.convert(
      {"--tokenizer", "bytes", "--json", "--distill-steps", "4", "--refit-tokens", "2048"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  const Json report = done.json();
  const Json config =
      Json::parse(bytes_of_file(std::filesystem::path(files.output) / "config.json"));
  CHECK(config["regroup"]["distill"]["own_tokens"] == 1024);
  CHECK_THAT(done.err, ContainsSubstring("1,024 of them written by the source;"));
  for (const char* stage :
       {"expected  about", "(sample ", "calibrate ", "distill ", "evaluate ", "of memory"}) {
    CHECK_THAT(done.err, ContainsSubstring(stage));
  }
  const Json& held_out = report["held_out"];
  CHECK(held_out["own_tokens"].get<int>() > 0);
  const Json& models = held_out["models"];
  CHECK(models[0]["divergence"] == 0.0);
  CHECK(models[0]["own_divergence"] == 0.0);
  CHECK(models[2]["divergence"] > 0.0);
  CHECK(models[2]["own_divergence"] < models[1]["own_divergence"]);
  const bool warned = report["warnings"].dump().find("has lost part of what") != std::string::npos;
  CHECK(warned == (models[2]["own_divergence"] > 0.25));
  REQUIRE(held_out["answers"].size() == 2);
  CHECK_THAT(bytes_of_file(std::filesystem::path(files.output) / "README.md"),
             ContainsSubstring("    this model: "));
  // Of 64 windows, 6 judge distillation, and nothing else reads them.
  CHECK(config["regroup"]["calibration_tokens"] == 58 * 32);
}

TEST_CASE("answers that begin with the given text are shown and not kept", "[uptrain]") {
  const TextConversion files;
  const ProgramResult done = files.convert({"--tokenizer", "bytes", "--json", "--own-text", "0"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(done.json()["held_out"]["answers"].size() == 2);
  const auto output = std::filesystem::path(files.output);
  const Json config = Json::parse(bytes_of_file(output / "config.json"));
  CHECK(config["regroup"]["held_out"].contains("models"));
  CHECK_FALSE(config["regroup"]["held_out"].contains("answers"));
  CHECK_THAT(bytes_of_file(output / "README.md"), !ContainsSubstring("    this model: "));
}

TEST_CASE(
    "a share of 0 leaves the text as it is, and other shares are refused where nothing is written",
    "[uptrain]") {
  const TextConversion files;
  const ProgramResult done =
      files.convert({"--tokenizer", "bytes", "--json", "--own-text", "0", "--distill-steps", "4"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK_THAT(done.err, !ContainsSubstring("written by the source"));
  CHECK(!done.json()["held_out"]["models"][2].contains("own_divergence"));
  const ProgramResult refused = run_program({"convert", files.model, files.output + "2",
                                             "--kv-heads", "1", "--sample", "--own-text", "0.5"});
  CHECK(refused.exit_code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("--own-text"));
}

TEST_CASE("results of statistics that were not kept are verified by their checksums", "[uptrain]") {
  const TextConversion files;
  std::vector<std::string> quick{
      "convert", "--allow-any-text", files.model,   files.output, "--kv-heads", "1",
      "--text",  files.text,         "--tokenizer", "bytes",      "--effort",   "quick",
      "--json",  "--refit-context",  "32"};
  const ProgramResult done = run_program(quick);
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(!done.json().contains("refit"));
  const ProgramResult verified = run_program({"verify", files.model, files.output});
  CAPTURE(verified.err);
  CHECK(verified.exit_code == 0);
  CHECK_THAT(verified.out, ContainsSubstring("checksums"));
  const auto config = std::filesystem::path(files.output) / "config.json";
  Json edited = Json::parse(bytes_of_file(config));
  edited["regroup"]["checksums"].begin().value() = "0123456789abcdef";
  put_file(config, edited.dump());
  CHECK(run_program({"verify", files.model, files.output}).exit_code == 5);
}

TEST_CASE("attentions are refitted where nothing is distilled", "[uptrain]") {
  const TextConversion files;
  std::vector<std::string> arguments{"convert",
                                     "--allow-any-text",
                                     files.model,
                                     files.output,
                                     "--kv-heads",
                                     "1",
                                     "--text",
                                     files.text,
                                     "--tokenizer",
                                     "bytes",
                                     "--refit-context",
                                     "32",
                                     "--json",
                                     "--refit-tokens",
                                     "1024",
                                     "--refit-batch",
                                     "2"};
  SECTION("without distillation") {
    arguments.insert(arguments.end(), {"--distill-steps", "0"});
    const ProgramResult done = run_program(arguments);
    CAPTURE(done.err);
    REQUIRE(done.exit_code == 0);
    CHECK(done.json()["refit"]["steps"] == 100);
  }
  SECTION("with it") {
    arguments.insert(arguments.end(), {"--distill-steps", "2"});
    const ProgramResult done = run_program(arguments);
    CAPTURE(done.err);
    REQUIRE(done.exit_code == 0);
    CHECK_FALSE(done.json().contains("refit"));
  }
}

TEST_CASE("sample shows a growing text on a terminal, and the same in a file", "[uptrain]") {
  TextConversion files;
  files.train();
  const std::vector<std::string> arguments{"sample", files.model, "--prompt", "3 4", "--tokenizer",
                                           "bytes",  "--tokens",  "60",       "-q"};
  const ProgramResult piped = run_program(arguments);
  REQUIRE(piped.exit_code == 0);
  CHECK(piped.out.starts_with("3 4"));
  CHECK(std::ranges::count(piped.out, ' ') > 4);
  std::string shown = run_on_terminal(arguments, 80).out;
  std::erase(shown, '\r');
  CHECK(shown == piped.out);
}

TEST_CASE("convert: refitting can be left out with a text, and has no effect without one",
          "[uptrain]") {
  const TextConversion files;
  const std::vector<std::string> none{
      "convert", "--allow-any-text", files.model, files.output, "--kv-heads",
      "1",       "--refit-steps",    "0"};
  std::vector<std::string> refits = none;
  refits.insert(refits.end(), {"--refit", files.text});
  const ProgramResult refused = run_program(refits);
  CHECK(refused.exit_code == kExitUsage);
  CHECK_THAT(refused.err, ContainsSubstring("--refit has no effect: --refit-steps is 0"));
  std::vector<std::string> thorough = none;
  thorough.insert(thorough.end(),
                  {"--text", files.text, "--tokenizer", "bytes", "--effort", "thorough",
                   "--distill-steps", "2", "--refit-context", "32", "--refit-tokens", "2048"});
  const ProgramResult done = run_program(thorough);
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.err, !ContainsSubstring("refit"));
}

TEST_CASE("the loss of convert --text is that of eval on the same tokens", "[uptrain]") {
  const TextConversion files;
  // The text has about 11,000 bytes: a tenth of its windows is held out, at the end.
  const ProgramResult done =
      files.convert({"--tokenizer", "bytes", "--effort", "quick", "--json", "--pool", "mean"});
  REQUIRE(done.exit_code == 0);
  const Json report = done.json();
  const std::string text = bytes_of_file(files.text);
  const auto windows = static_cast<std::int64_t>((text.size() - 1) / 32);
  const std::int64_t held_out = report["held_out"]["tokens"].get<std::int64_t>() / 32;
  REQUIRE(held_out == windows / 10);
  const std::string last = text.substr(static_cast<std::size_t>(32 * (windows - held_out)),
                                       static_cast<std::size_t>(32 * held_out + 1));
  put_file(files.directory / "last.txt", last);
  const std::string tokens = (files.directory / "last.npy").string();
  REQUIRE(run_program({"tokenize", (files.directory / "last.txt").string(), "--tokenizer", "bytes",
                       "-o", tokens})
              .exit_code == 0);
  const auto evaluated = [&](const std::string& model) {
    return run_program({"eval", model, "--data", tokens, "--context", "32", "--json"})
        .json()["loss"]
        .get<double>();
  };
  CHECK(std::abs(loss_of(report, 0) - evaluated(files.model)) < 1e-4);
  CHECK(std::abs(loss_of(report, 2) - evaluated(files.output)) < 1e-4);
}

TEST_CASE("convert --text writes GGUF and verifies it", "[uptrain]") {
  TextConversion files;
  files.output += ".gguf";
  const ProgramResult done = files.convert({"--tokenizer", "bytes", "--json"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(done.json()["held_out"]["models"].size() == 3);
  CHECK(run_program({"verify", files.model, files.output}).exit_code == 0);
}

TEST_CASE("convert --text --dry-run writes nothing and names the plan", "[uptrain]") {
  const TextConversion files;
  const auto before = tree_of(files.directory.path());
  const ProgramResult shown = files.convert({"--tokenizer", "bytes", "--dry-run", "--json"});
  CAPTURE(shown.err);
  REQUIRE(shown.exit_code == 0);
  CHECK(shown.json()["pool"] == "lowrank");
  CHECK(!shown.json().contains("held_out"));
  const ProgramResult whole =
      run_program({"convert", files.model, files.output, "--kv-heads", "1", "--text", files.text,
                   "--tokenizer", "bytes", "--refit-context", "32", "--dry-run"});
  CAPTURE(whole.err);
  CHECK(whole.exit_code == 0);  // with the source's own text and distillation, as by default
  CHECK_THAT(whole.err, ContainsSubstring("131,072 of them written by the source"));
  CHECK(tree_of(files.directory.path()) == before);
}

TEST_CASE("the expected time of --kv-budget has that of measuring the layers", "[uptrain]") {
  const TextConversion files;
  const ProgramResult shown =
      run_program({"convert", files.model, files.output, "--kv-budget", "75%", "--text", files.text,
                   "--tokenizer", "bytes", "--refit-context", "32", "--dry-run"});
  CAPTURE(shown.err);
  REQUIRE(shown.exit_code == 0);
  CHECK_THAT(shown.err,
             ContainsSubstring(", measure ") && ContainsSubstring("measures the layers first"));
}

TEST_CASE("a budget that no number of kv heads meets is refused before the text is read",
          "[uptrain]") {
  const TextConversion files;
  for (const char* dry_run : {"", "--dry-run"}) {
    std::vector<std::string> words{"convert", files.model,       files.output, "--kv-budget",
                                   "1%",      "--text",          "not-there",  "--tokenizer",
                                   "bytes",   "--refit-context", "32"};
    if (*dry_run != '\0') {
      words.emplace_back(dry_run);
    }
    const ProgramResult refused = run_program(words);
    CHECK(refused.exit_code == 2);
    CHECK(refused.one_line_of_error());
    CHECK_THAT(refused.err, ContainsSubstring("the fewest kv heads need"));
    words[4] = "100%";
    CHECK_THAT(run_program(words).err, ContainsSubstring("no less than the source's cache"));
  }
}

TEST_CASE("a text that does not fit the model is refused before anything is computed",
          "[uptrain]") {
  const TextConversion files;
  const auto before = tree_of(files.directory.path());
  const auto refused = [&](const std::vector<std::string>& more, const char* reason,
                           const char* context = "32") {
    const ProgramResult result = files.convert(more, context);
    CAPTURE(result.err);
    CHECK(result.exit_code != 0);
    CHECK(result.one_line_of_error());
    CHECK_THAT(result.err, ContainsSubstring(reason));
    CHECK(tree_of(files.directory.path()) == before);
  };
  refused({}, "tokenizer");  // the model has none
  refused({"--tokenizer", "bytes", "--field", "body"}, "no input is JSON");
  refused({"--tokenizer", "bytes"}, "too few", "4096");
  refused({"--tokenizer", "bytes", "--refit", files.text}, "--text");
  refused({"--tokenizer", "bytes", "--effort", "least"}, "quick, normal and thorough");
  refused({"--tokenizer", "bytes", "--effort", "4G"}, "--effort");
  refused({"--tokenizer", "bytes", "--effort", "12"}, "from 1,024");
  for (const char* effort : {"quick", "normal"}) {  // which distil, and do not refit
    CAPTURE(effort);
    const ProgramResult useless = run_program(
        {"convert", "--allow-any-text", files.model, files.output, "--kv-heads", "1", "--text",
         files.text, "--tokenizer", "bytes", "--effort", effort, "--refit-lr", "0.1"});
    CHECK(useless.exit_code == kExitUsage);
    CHECK_THAT(useless.err, ContainsSubstring("--refit-lr"));
  }
  const ProgramResult undistilled = run_program(
      {"convert", "--allow-any-text", files.model, files.output, "--kv-heads", "1", "--text",
       files.text, "--tokenizer", "bytes", "--distill-steps", "0", "--distill-lr", "0.01"});
  CHECK(undistilled.exit_code == kExitUsage);
  CHECK_THAT(undistilled.err, ContainsSubstring("--distill-lr"));
  CHECK(tree_of(files.directory.path()) == before);
}

TEST_CASE("a conversion uses windows from all over its texts", "[uptrain]") {
  TextConversion files;
  const std::string same(40'000, 'a');  // statistics of it alone give no heads
  const auto other = files.directory / "same.txt";
  put_file(other, same);
  // 32 of 544 windows are used, all of them of the text.
  const std::vector<std::string> few{"--tokenizer",    "bytes", "--effort",   "quick",
                                     "--refit-tokens", "1024",  "--own-text", "0"};
  SECTION("of a text that hardly varies") {
    files.text = other.string();
    const ProgramResult refused = files.convert(few);
    CHECK(refused.exit_code == kExitBadInput);
    CHECK_THAT(refused.err, ContainsSubstring("hardly varies"));
  }
  SECTION("of a text that does so at its beginning") {
    put_file(files.directory / "long.txt", same.substr(0, 5'000) + bytes_of_file(files.text));
    files.text = (files.directory / "long.txt").string();
    CHECK(files.convert(few).exit_code == 0);
  }
  SECTION("of two texts") {
    auto both = few;
    both.insert(both.end(), {"--text", files.text});
    files.text = other.string();
    CHECK(files.convert(both).exit_code == 0);
  }
}

TEST_CASE("windows of an encoder are inputs between its special tokens", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string model = (directory / "bert").string();
  std::filesystem::copy(golden("bert_base"), model);
  put_file(directory / "bert/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\n");
  std::string words;
  for (int i = 0; i < 2000; ++i) {
    words += "abcde"[i * i % 11 % 5] + std::string(" ");
  }
  const std::string text = (directory / "words.txt").string();
  put_file(text, words);
  const auto convert = [&](const char* context, const char* output) {
    return run_program({"convert", model, (directory / output).string(), "--kv-heads", "4",
                        "--text", text, "--refit-context", context, "--refit-batch", "2",
                        "--distill-steps", "6"});
  };
  // [CLS], 2,000 words and [SEP] are 142 windows of 14 tokens, of which 14 are held out; with 16
  // tokens of text in each they would be 125.
  const ProgramResult done = convert("16", "out");
  CAPTURE(done.err);
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.err, ContainsSubstring("text      2,048 tokens to convert with; 224 held out"));
  CHECK_THAT(done.err, !ContainsSubstring("check text"));
  const ProgramResult refused = convert("2", "short");
  CHECK(refused.exit_code == kExitUsage);
  CHECK_THAT(refused.err, ContainsSubstring("no room between the model's special tokens"));
}

TEST_CASE("options of --text need it", "[uptrain]") {
  const TextConversion files;
  for (const char* option : {"--tokenizer=bytes", "--effort=quick", "--distill-steps=5",
                             "--distill-lr=0.01", "--distill-attention=1"}) {
    const ProgramResult result =
        run_program({"convert", files.model, files.output, "--kv-heads", "1", option});
    CHECK(result.exit_code == kExitUsage);
    CHECK_THAT(result.err, ContainsSubstring("--text"));
  }
}

TEST_CASE("a text that the model predicts no better than chance is refused unless it is allowed",
          "[uptrain]") {
  TextConversion files;  // random weights
  const std::string tokens = (files.directory / "tokens.bin").string();
  REQUIRE(run_program({"tokenize", files.text, "--tokenizer", "bytes", "-o", tokens}).exit_code ==
          0);
  const std::string statistics = (files.directory / "statistics.safetensors").string();
  const auto before = tree_of(files.directory.path());
  const auto refused = [&](std::vector<std::string> command, const char* option) {
    command.insert(command.begin(), "--quiet");
    const ProgramResult result = run_program(command);
    CAPTURE(result.err);
    CHECK(result.exit_code == kExitBadInput);
    CHECK(result.one_line_of_error());
    CHECK_THAT(result.err, ContainsSubstring(std::string(option) + ": ") &&
                               ContainsSubstring("no better than chance") &&
                               ContainsSubstring("--allow-any-text"));
    CHECK(tree_of(files.directory.path()) == before);
    command.emplace_back("--allow-any-text");
    CHECK(run_program(command).exit_code == 0);
  };
  const std::string& model = files.model;
  SECTION("by convert") {
    refused({"convert", model, files.output, "--kv-heads", "1", "--text", files.text, "--tokenizer",
             "bytes", "--distill-steps", "0", "--refit-context", "32"},
            "--text");
  }
  SECTION("by its refitting") {
    refused({"convert", model, files.output, "--kv-heads", "1", "--refit", tokens, "--refit-steps",
             "2", "--refit-context", "32"},
            "--refit");
  }
  SECTION("by its budget") {
    refused({"convert", model, files.output, "--kv-budget", "50%", "--kv-budget-data", tokens,
             "--refit-context", "32"},
            "--kv-budget-data");
  }
  SECTION("by calibrate") {
    refused({"calibrate", model, "--data", tokens, "--context", "32", "-o", statistics}, "--data");
  }
}

TEST_CASE("a text that the model has learnt is accepted, and noise is not", "[uptrain]") {
  TextConversion files;
  files.train();
  const std::string statistics = (files.directory / "statistics.safetensors").string();
  const ProgramResult accepted =
      run_program({"calibrate", files.model, "--data", (files.directory / "tokens.bin").string(),
                   "--context", "32", "-o", statistics});
  CAPTURE(accepted.err);
  CHECK(accepted.exit_code == 0);
  std::string noise;
  std::uint32_t state = 1;
  for (int i = 0; i < 11'000; ++i) {
    state = state * 1'664'525U + 1'013'904'223U;
    noise += static_cast<char>('0' + (state >> 24U) % 10);  // digits, as in the text
  }
  put_file(files.directory / "noise.txt", noise);
  const ProgramResult refused =
      run_program({"calibrate", files.model, "--text", (files.directory / "noise.txt").string(),
                   "--tokenizer", "bytes", "--context", "32", "-o", statistics + "2"});
  CHECK(refused.exit_code == kExitBadInput);
  CHECK_THAT(refused.err, ContainsSubstring("by how often the text has each token has 2.3"));
}

}  // namespace regroup

// Errors for wrong input: one line, the right exit code, and no files.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

// A tiny model in `source`. Checks that commands fail as they should and leave no files.
class WrongInputs {
 public:
  explicit WrongInputs(const TinyModel& tiny = tiny_llama()) { put_model(path("source"), tiny); }

  fs::path path(const fs::path& name) const { return directory_ / name; }

  void check_refused(const std::vector<std::string>& command, int exit_code,
                     const std::vector<std::string>& words) const {
    CAPTURE(command);
    const auto before = tree_of(directory_.path());
    const ProgramResult result = run_program(command);
    CAPTURE(result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(result.out.empty());
    CHECK(result.one_line_of_error());
    CHECK(result.err.starts_with("regroup"));
    for (const std::string& word : words) {
      CHECK_THAT(result.err, ContainsSubstring(word));
    }
    const bool untouched = tree_of(directory_.path()) == before;
    CHECK(untouched);
  }

  // Runs convert with `source`, an output and the given number of kv heads.
  void check_convert_refused(const std::string& source, const std::string& kv_heads, int exit_code,
                             const std::vector<std::string>& words) const {
    check_refused(
        {"convert", path(source).string(), path("deep/result").string(), "--kv-heads", kv_heads},
        exit_code, words);
  }

 private:
  TemporaryDirectory directory_;
};

TEST_CASE("a path that is not a model is bad input", "[end_to_end]") {
  const WrongInputs scene;
  fs::create_directory(scene.path("empty"));
  put_file(scene.path("notes.txt"), "some text, longer than eight bytes");
  put_file(scene.path("unknown/config.json"), R"({"model_type": "ministral"})");
  fs::copy_file(scene.path("source/model.safetensors"), scene.path("unknown/model.safetensors"));
  scene.check_convert_refused("none", "4", kExitBadInput, {"none", "no such file"});
  scene.check_convert_refused("empty", "4", kExitBadInput, {"empty", "config.json"});
  scene.check_convert_refused("notes.txt", "4", kExitBadInput, {"notes.txt", "model directory"});
  scene.check_convert_refused("unknown", "4", kExitBadInput,
                              {"unknown/config.json", "ministral", "mistral"});
  scene.check_refused({"inspect", scene.path("none").string()}, kExitBadInput, {"none"});
  scene.check_refused({"inspect", scene.path("empty").string()}, kExitBadInput,
                      {"model.safetensors"});
  scene.check_refused({"inspect", scene.path("notes.txt").string()}, kExitBadInput, {"notes.txt"});
  scene.check_refused({"inspect", ""}, kExitUsage, {"MODEL", "empty"});
  scene.check_refused({"inspect", std::string(5000, 'x')}, kExitBadInput, {"xxx"});
}

TEST_CASE("a file of llama2.c is refused by name", "[end_to_end]") {
  const WrongInputs scene;
  std::string bytes;
  for (const std::uint32_t number : {4U, 6U, 1U, 2U, 2U, 5U, 3U}) {  // run.c's header
    bytes += little_endian(number, 4);
  }
  put_file(scene.path("model.bin"), bytes + std::string(4 * 174, '\0'));
  scene.check_refused({"inspect", scene.path("model.bin").string()}, kExitBadInput,
                      {"model.bin", "llama2.c"});
  scene.check_convert_refused("model.bin", "1", kExitBadInput, {"model.bin", "llama2.c"});
}

TEST_CASE("wrong files under the weights' name are recognised", "[end_to_end]") {
  const WrongInputs scene;
  for (const auto& [bytes, hint] :
       {std::pair{"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
        std::pair{"<!DOCTYPE html><html>", "HTML"}, std::pair{"GGUF\x03 and so on", "GGUF"},
        std::pair{"\x1f\x8b\x08 and so on", "gzip"}}) {
    put_file(scene.path("source/model.safetensors"), bytes);
    scene.check_convert_refused("source", "4", kExitBadInput, {"source/model.safetensors", hint});
    scene.check_refused({"inspect", scene.path("source").string()}, kExitBadInput, {hint});
  }
  fs::remove(scene.path("source/model.safetensors"));
  fs::create_directory(scene.path("source/model.safetensors"));
  scene.check_convert_refused("source", "4", kExitBadInput,
                              {"source/model.safetensors", "a directory"});
}

TEST_CASE("a missing shard is bad input", "[end_to_end]") {
  const WrongInputs scene;
  put_sharded_model(scene.path("sharded"), tiny_llama(), 5);
  fs::remove(scene.path("sharded/part-02.safetensors"));
  scene.check_convert_refused("sharded", "4", kExitBadInput,
                              {"model.safetensors.index.json", "part-02.safetensors", "missing"});
  scene.check_refused({"inspect", scene.path("sharded").string()}, kExitBadInput,
                      {"part-02.safetensors"});
}

TEST_CASE("circular links are bad input", "[end_to_end]") {
  const WrongInputs scene;
  fs::create_symlink("circle", scene.path("circle"));
  scene.check_refused({"inspect", scene.path("circle").string()}, kExitBadInput, {"circle"});
  scene.check_convert_refused("circle", "4", kExitBadInput, {"circle"});
}

TEST_CASE("kv heads that the model does not allow are wrong usage", "[end_to_end]") {
  const WrongInputs scene;
  scene.check_convert_refused("source", "5", kExitUsage, {"5", "12 kv heads", "1, 2, 3, 4, 6, 12"});
  scene.check_convert_refused("source", "24", kExitUsage, {"24", "12"});
  scene.check_convert_refused("source", "4,4,4", kExitUsage, {"3 layers"});
  for (const char* text : {"0", "-4", "four", "4.0", "", "4,"}) {
    scene.check_convert_refused("source", text, kExitUsage, {"--kv-heads", text});
  }
}

TEST_CASE("an existing destination is wrong usage", "[end_to_end]") {
  const WrongInputs scene;
  fs::create_directory(scene.path("there"));
  for (const std::string& destination :
       {scene.path("there").string(), scene.path("source").string(),
        scene.path("source/new").string(), scene.path("source/config.json").string(),
        std::string()}) {
    scene.check_refused({"convert", scene.path("source").string(), destination, "--kv-heads", "4"},
                        kExitUsage, {});
  }
}

TEST_CASE("an unwritable destination is an environment failure", "[end_to_end]") {
  const WrongInputs scene;
  scene.check_refused(
      {"convert", scene.path("source").string(), "/proc/regroup-result", "--kv-heads", "4"},
      kExitEnvironment, {"/proc/regroup-result", "cannot create"});
}

TEST_CASE("NaN in K or V is bad input unless allowed", "[end_to_end]") {
  TinyModel tiny = tiny_llama();
  tiny.tensor("model.layers.1.self_attn.k_proj.weight").bytes.replace(40, 4, "\xff\xff\xff\x7f");
  const WrongInputs scene(tiny);
  scene.check_convert_refused("source", "4", kExitBadInput,
                              {"model.layers.1.self_attn.k_proj.weight", "NaN"});
  CHECK(run_program({"convert", scene.path("source").string(), scene.path("result").string(),
                     "--kv-heads", "4", "--allow-nonfinite"})
            .exit_code == 0);
}

TEST_CASE("unknown and missing options and arguments are wrong usage", "[end_to_end]") {
  const WrongInputs scene;
  const std::string source = scene.path("source").string();
  const std::string result = scene.path("result").string();
  scene.check_refused({"--quiet"}, kExitUsage, {"a command is needed", "--help"});
  const ProgramResult alone = run_program({});
  CHECK(alone.exit_code == kExitUsage);
  CHECK(alone.out == run_program({"--help"}).out);
  scene.check_refused({"frobnicate"}, kExitUsage, {"--help"});
  scene.check_refused({"info", source}, kExitUsage, {"did you mean inspect?"});
  scene.check_refused({"--frobnicate"}, kExitUsage, {"--help"});
  scene.check_refused({"inspect"}, kExitUsage,
                      {"MODEL is missing: regroup inspect MODEL", "regroup inspect --help"});
  scene.check_refused({"inspect", source, "--frobnicate"}, kExitUsage, {"--frobnicate"});
  scene.check_refused({"inspect", source, source}, kExitUsage, {});
  scene.check_refused({"convert"}, kExitUsage, {"regroup convert --help"});
  scene.check_refused({"convert", source}, kExitUsage,
                      {"OUTPUT is missing: regroup convert SOURCE OUTPUT"});
  scene.check_refused({"convert", source, result}, kExitUsage, {"--kv-heads"});
  scene.check_refused({"convert", source, result, "--kv-heads"}, kExitUsage,
                      {"--kv-heads needs a value"});
  for (const char* size : {"big", "-1", "-1GB", "0", "", "5 apples"}) {
    scene.check_refused({"convert", source, result, "--kv-heads", "4", "--max-shard-size", size},
                        kExitUsage, {"max-shard-size"});
  }
  scene.check_refused({"convert", source, result, "--kv-heads", "4", "--frobnicate\n--twice"},
                      kExitUsage, {});
}

TEST_CASE("help and version succeed", "[end_to_end]") {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"--help"},
                                                  {"--version"},
                                                  {"convert", "--help"},
                                                  {"inspect", "--help"}}) {
    CAPTURE(command);
    const ProgramResult result = run_program(command);
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    CHECK_THAT(result.out, ContainsSubstring("regroup"));
  }
}

}  // namespace
}  // namespace regroup

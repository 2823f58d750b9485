// Links that lead out of a model's directory, and directories that are mounted twice.
#include <catch2/catch_test_macros.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

fs::path put_source(const TemporaryDirectory& directory) {
  const fs::path source = put_model(directory / "source", tiny_llama());
  put_file(source / "tokenizer.json", "{}");
  put_file(directory / "shadow", "a secret");
  fs::create_symlink("../shadow", source / "vocab.txt");
  fs::create_symlink("tokenizer.json", source / "also.json");
  return source;
}

}  // namespace

TEST_CASE("a link out of the model's directory is not copied and a warning names it",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path source = put_source(directory);
  const fs::path result = directory / "result";
  const ProgramResult run =
      run_program({"convert", source.string(), result.string(), "--kv-heads", "4"});
  CAPTURE(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.err.find("vocab.txt is left out") != std::string::npos);
  CHECK(run.err.find((fs::canonical(directory.path()) / "shadow").string()) != std::string::npos);
  CHECK_FALSE(fs::exists(fs::symlink_status(result / "vocab.txt")));
  CHECK(bytes_of_file(result / "also.json") == "{}");
  for (const auto& [name, bytes] : tree_of(result)) {
    CHECK(bytes.find("secret") == std::string::npos);
  }
}

TEST_CASE("a tokenizer behind such a link, and links to nothing, are named", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path source = put_model(directory / "source", tiny_llama());
  for (const char* name : {"tokenizer.json", "notes.txt"}) {
    put_file(directory / name, "{}");
    fs::create_symlink(fs::path("..") / name, source / name);
  }
  fs::create_symlink("../deleted", source / "merges.txt");
  const auto convert = [&](const char* output) {
    return run_program(
        {"convert", source.string(), (directory / output).string(), "--kv-heads", "4", "--quiet"});
  };
  const ProgramResult run =
      run_program({"convert", source.string(), (directory / "a").string(), "--kv-heads", "4"});
  CAPTURE(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(
      run.err.find("notes.txt, tokenizer.json are left out: links out of the model's directory") !=
      std::string::npos);
  CHECK(run.err.find("merges.txt is left out: a link to ../deleted, which is not there") !=
        std::string::npos);
  const std::string warning = "warning: the result has no tokenizer.json";
  CHECK(convert("b").err.find(warning) != std::string::npos);
  put_file(source / "vocab.txt", "a");  // a tokenizer of its own
  CHECK(convert("c").err.find(warning) == std::string::npos);
  fs::remove(source / "model.safetensors");
  fs::create_symlink("../deleted", source / "model.safetensors");
  const ProgramResult broken = run_program({"inspect", source.string()});
  CHECK(broken.exit_code == kExitBadInput);
  CHECK(broken.err.find("model.safetensors: a link to ../deleted, which is not there") !=
        std::string::npos);
}

TEST_CASE("a chat template behind such a link is not written to a GGUF file", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path source = put_model(directory / "source", tiny_llama());
  put_file(directory / "shadow", "a secret");
  fs::create_symlink("../shadow", source / "chat_template.jinja");
  put_file(source / "tokenizer.json",
           R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  const fs::path result = directory / "result.gguf";
  const ProgramResult run =
      run_program({"convert", source.string(), result.string(), "--kv-heads", "4", "--to", "gguf"});
  CAPTURE(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(bytes_of_file(result).find("a secret") == std::string::npos);
  CHECK(run.err.find("chat_template.jinja is left out") != std::string::npos);
}

TEST_CASE("an output inside the source is refused under a second mount", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path source = put_source(directory);
  const fs::path mounted = directory / "mounted";
  fs::create_directory(mounted);
  fs::create_directory(source / "below");
  const auto before = tree_of(source);
  const auto convert_under = [&](const fs::path& what) {
    return run_program(
        {"convert", source.string(), (mounted / "result").string(), "--kv-heads", "4", "--quiet"},
        {"unshare", "-Urm", "sh", "-c", R"(mount --bind "$0" "$1" || exit 77; shift; exec "$@")",
         what.string(), mounted.string()});
  };
  for (const fs::path& what : {source, source / "below"}) {
    CAPTURE(what);
    const ProgramResult run = convert_under(what);
    if (run.exit_code == 77 || run.err.find("unshare") != std::string::npos) {
      SKIP("nothing may be mounted here");
    }
    CAPTURE(run.err);
    CHECK(run.exit_code == kExitUsage);
    CHECK(run.one_line_of_error());
    CHECK(run.err.find("inside the source") != std::string::npos);
    CHECK(tree_of(source) == before);
  }
}

}  // namespace regroup

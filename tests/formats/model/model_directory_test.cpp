#include "formats/model/model_directory.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names(const std::vector<fs::path>& paths) {
  std::vector<std::string> found;
  for (const fs::path& path : paths) {
    found.push_back(path.string());
  }
  return found;
}

TEST_CASE("a model directory has a config and tensors and companions", "[formats]") {
  const TemporaryDirectory directory;
  const TinyModel model = tiny_llama();
  put_model(directory.path(), model);
  put_file(directory / "tokenizer.json", "{}");
  const ModelDirectory opened = open_model_directory(directory.path());
  CHECK(opened.config_text == model.config);
  CHECK(opened.config.at("hidden_size") == 6);
  CHECK(opened.checkpoint.tensors().size() == model.tensors.size());
  CHECK(names(opened.companions) == std::vector<std::string>{"tokenizer.json"});
}

const std::vector<std::string> kCarried{"LICENSE",
                                        "README.md",
                                        "added_tokens.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "merges.txt",
                                        "preprocessor_config.json",
                                        "special_tokens_map.json",
                                        "spiece.model",
                                        "tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "vocab.json"};

constexpr const char* kLeftOut[] = {"pytorch_model.bin",
                                    "pytorch_model.bin.index.json",
                                    "model-00001-of-00002.safetensors",
                                    "model.safetensors.index.fp32.json.index.json",
                                    "consolidated.00.pth",
                                    "consolidated.safetensors",
                                    "params.json",
                                    "tf_model.h5",
                                    "flax_model.msgpack",
                                    "model.onnx",
                                    "model.onnx_data",
                                    "model.onnx.data",
                                    "bert_model.ckpt.data-00000-of-00001",
                                    "saved_model.pb",
                                    "model_state.pdparams",
                                    "openvino_model.xml",
                                    "optimizer.pt",
                                    "model.gguf",
                                    "last.ckpt",
                                    "rust_model.ot",
                                    "64.tflite",
                                    ".gitattributes",
                                    "original/tokenizer.model",
                                    "onnx/config.json",
                                    "consolidated.00.sha256"};

TEST_CASE("companions are all files except weights and indices and hidden files", "[formats]") {
  const TemporaryDirectory directory;
  put_model(directory.path(), tiny_llama());
  for (const std::string& name : kCarried) {
    put_file(directory / name, name);
  }
  for (const char* name : kLeftOut) {
    put_file(directory / name, "stale");
  }
  CHECK(names(open_model_directory(directory.path()).companions) == kCarried);
}

TEST_CASE("a snapshot of links into a cache is read like a directory of files", "[formats]") {
  const TemporaryDirectory cache;
  const fs::path blobs = put_model(cache / "blobs", tiny_llama());
  put_file(blobs / "tok", "{}");
  const fs::path snapshot = cache / "snapshots" / "abc";
  fs::create_directories(snapshot);
  for (const auto& [name, blob] :
       {std::pair{"config.json", "config.json"},
        std::pair{"model.safetensors", "model.safetensors"}, std::pair{"tokenizer.json", "tok"}}) {
    fs::create_symlink(fs::path("../../blobs") / blob, snapshot / name);
  }
  fs::create_symlink("gone", snapshot / "dangling.txt");
  const ModelDirectory opened = open_model_directory(snapshot);
  CHECK(opened.checkpoint.find("lm_head.weight") != nullptr);
  CHECK(names(opened.companions) == std::vector<std::string>{"tokenizer.json"});
}

TEST_CASE("a weight file next to its config opens as the whole model", "[formats]") {
  const ModelDirectory model = open_model_directory(golden("llama") / "model.safetensors");
  CHECK(model.path == golden("llama"));
  CHECK(model.checkpoint.tensors().size() ==
        open_model_directory(golden("llama")).checkpoint.tensors().size());
}

TEST_CASE("a path that is not a model directory is refused with what is missing", "[formats]") {
  const TemporaryDirectory directory;
  const auto refusal = [](const fs::path& path) {
    return refusal_of([&] { open_model_directory(path); });
  };
  CHECK_THAT(refusal(directory / "none"), is_bad_input("none", "no such file or directory"));
  CHECK_THAT(refusal(""), is_bad_input("no such file or directory"));
  CHECK_THAT(refusal(directory.path()), is_bad_input(directory.path().string(), "config.json"));
  put_file(directory / "config.json", "{}");
  CHECK_THAT(refusal(directory.path()), is_bad_input("model.safetensors", "not a model directory"));
  CHECK_THAT(refusal(directory / "config.json"),
             is_bad_input("config.json", "too short for a weight file (JSON: give the directory"));
  put_file(directory / "model.safetensors", "");
  CHECK_THAT(refusal(directory.path()), is_bad_input("model.safetensors", "too short"));
}

TEST_CASE("an unusable config is refused by name", "[formats]") {
  const TemporaryDirectory directory;
  put_model(directory.path(), tiny_llama());
  const auto refusal = [&] { return refusal_of([&] { open_model_directory(directory.path()); }); };
  put_file(directory / "config.json", "[]");
  CHECK_THAT(refusal(), is_bad_input("config.json", "object"));
  put_file(directory / "config.json", "<!DOCTYPE html>");
  CHECK_THAT(refusal(), is_bad_input("config.json", "not valid JSON"));
  fs::remove(directory / "config.json");
  fs::create_directory(directory / "config.json");
  CHECK_THAT(refusal(), is_bad_input("config.json", "a directory"));
  fs::remove(directory / "config.json");
  fs::create_symlink("config.json", directory / "config.json");
  CHECK_THAT(refusal(), is_bad_input("config.json"));
}

TEST_CASE("circular links are bad input", "[formats]") {
  const TemporaryDirectory directory;
  put_model(directory.path(), tiny_llama());
  fs::create_symlink("circle", directory / "circle");
  CHECK_THAT(refusal_of([&] { open_checkpoint(directory / "circle"); }), is_bad_input("circle"));
  // A circular link that is not needed is ignored.
  CHECK(open_model_directory(directory.path()).companions.empty());
  fs::remove(directory / "model.safetensors");
  fs::create_symlink("model.safetensors", directory / "model.safetensors");
  CHECK_THAT(refusal_of([&] { open_model_directory(directory.path()); }),
             is_bad_input("model.safetensors"));
}

TEST_CASE("a path longer than the system's limit is bad input", "[formats]") {
  CHECK_THAT(refusal_of([] { open_checkpoint(std::string(5000, 'x')); }), is_bad_input("xxx"));
  CHECK_THAT(refusal_of([] { open_model_directory(std::string(5000, 'x')); }), is_bad_input("xxx"));
}

TEST_CASE("weights open from a directory or an index or one file", "[formats]") {
  const fs::path sharded = golden("llama_sharded");
  CHECK(open_checkpoint(sharded).tensors().size() == 21);
  CHECK(open_checkpoint(sharded / "model.safetensors.index.json").files().size() == 8);
  CHECK(open_checkpoint(sharded / "model-00003-of-00008.safetensors").files().size() == 1);
  CHECK(directory_of_model(sharded) == sharded);
  CHECK(directory_of_model(sharded / "config.json") == sharded);
}

TEST_CASE("index_of_checkpoint returns the index that was opened", "[formats]") {
  const fs::path sharded = golden("llama_sharded");
  const fs::path index = sharded / "model.safetensors.index.json";
  CHECK(index_of_checkpoint(sharded) == index);
  CHECK(index_of_checkpoint(index) == index);
  CHECK_FALSE(index_of_checkpoint(sharded / "model-00003-of-00008.safetensors"));
  CHECK_FALSE(index_of_checkpoint(golden("llama")));
  const TemporaryDirectory empty;
  CHECK_FALSE(index_of_checkpoint(empty.path()));
}

TEST_CASE("copy_companions copies companions only", "[formats]") {
  const TemporaryDirectory directory;
  put_model(directory / "from", tiny_llama());
  put_file(directory / "from/tokenizer.json", "{}");
  put_file(directory / "from/LICENSE", "");
  put_file(directory / "from/.hidden", "secret");
  fs::create_directory(directory / "to");
  copy_companions(open_model_directory(directory / "from"), directory / "to");
  CHECK(tree_of(directory / "to") ==
        std::map<std::string, std::string>{{"tokenizer.json", "{}"}, {"LICENSE", ""}});
}

TEST_CASE("the folders that modules.json names are companions, with their weights", "[formats]") {
  const TemporaryDirectory directory;
  const fs::path from = put_model(directory / "from", tiny_llama());
  const std::map<std::string, std::string> expected{
      {"modules.json",
       R"([{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}, {"path": "3_Normalize"},
           {"path": "../out"}, {"path": ".git"}, {"path": "link"}, {"path": 1}, {}, 7])"},
      {"1_Pooling/", ""},
      {"1_Pooling/config.json", "{}"},
      {"2_Dense/", ""},
      {"2_Dense/model.safetensors", "dense"},
      {"2_Dense/query_0/", ""},
      {"2_Dense/query_0/deeper/", ""},
      {"2_Dense/query_0/deeper/model.safetensors", "of a router's module"}};
  for (const auto& [name, text] : expected) {
    if (!name.ends_with('/')) {
      put_file(from / name, text);
    }
  }
  for (const char* name : {"1_Pooling/.hidden", ".git/config", "onnx/model.onnx", "../out/file"}) {
    put_file(from / name, "secret");
  }
  fs::create_directory_symlink("../out", from / "link");
  fs::create_symlink("../../out/file", from / "1_Pooling" / "linked");
  fs::create_directory_symlink("../../out", from / "1_Pooling" / "folder");
  fs::create_directory(directory / "to");
  const ModelDirectory opened = open_model_directory(from);
  copy_companions(opened, directory / "to");
  CHECK(tree_of(directory / "to") == expected);
  const auto notes = notes_on_companions(opened);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("1_Pooling/linked is left out"));
}

TEST_CASE("weights of other parts are companions, other forms of the model are not", "[formats]") {
  const TemporaryDirectory directory;
  const TinyModel model = tiny_llama();
  const fs::path from = put_model(directory / "from", model);
  const std::vector<BuiltTensor> head{varied_tensor("v_head.summary.weight", DType::kF32, {1, 8})};
  put_checkpoint(from / "value_head.safetensors", head);
  put_checkpoint(from / "renamed.safetensors", model.tensors);
  put_file(from / "unreadable.pt", "no pickle");
  put_file(from / "optimizer.pt", "no pickle");
  const ModelDirectory opened = open_model_directory(from);
  CHECK(opened.companions == std::vector<fs::path>{"value_head.safetensors"});
  const auto notes = notes_on_companions(opened);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("unreadable.pt is left out"));
}

TEST_CASE("the tokenizer's further chat templates are companions", "[formats]") {
  const TemporaryDirectory directory;
  const fs::path folder = directory / "model/additional_chat_templates";
  for (const char* name : {"tool_use.jinja", ".hidden.jinja", "other.bin"}) {
    put_file(folder / name, name);
  }
  put_file(directory / "outside.jinja", "");
  fs::create_symlink("../../outside.jinja", folder / "linked.jinja");
  CHECK(companions_of(directory / "model") ==
        std::vector<fs::path>{"additional_chat_templates/tool_use.jinja"});
  CHECK(companions_of(directory / "model", /*outside=*/true) ==
        std::vector<fs::path>{"additional_chat_templates/linked.jinja"});
  fs::create_directory(directory / "other");
  fs::create_directory_symlink(folder, directory / "other/additional_chat_templates");
  CHECK(companions_of(directory / "other").empty());
}

TEST_CASE("a modules.json of something else is a file like any other", "[formats]") {
  for (const char* text : {"", "[", "{}", "3", R"({"path": "folder"})", R"(["folder"])"}) {
    CAPTURE(text);
    const TemporaryDirectory directory;
    put_model(directory.path(), tiny_llama());
    put_file(directory / "modules.json", text);
    put_file(directory / "folder/config.json", "{}");
    CHECK(names(open_model_directory(directory.path()).companions) ==
          std::vector<std::string>{"modules.json"});
  }
}

TEST_CASE("an output inside its source is refused", "[formats]") {
  const TemporaryDirectory directory;
  const fs::path from = put_model(directory / "from", tiny_llama());
  const ModelDirectory model = open_model_directory(from);
  fs::create_directory_symlink(from, directory / "link");
  for (const fs::path& inside :
       {from / "to", from, from / "a/../b", directory / "link/to", directory / "x/../from/to"}) {
    CAPTURE(inside);
    CHECK_THAT(refusal_of([&] { refuse_output_inside(model, inside); }),
               is_wrong_usage("lies inside the source", from.string()));
  }
  CHECK_NOTHROW(refuse_output_inside(model, directory / "to"));
  CHECK_NOTHROW(refuse_output_inside(model, directory / "from_too"));
  CHECK_NOTHROW(refuse_output_inside(model, from / "../to"));
}

TEST_CASE("a buffer of another size than the tensor is refused", "[formats]") {
  const Checkpoint checkpoint = open_checkpoint(golden("llama"));
  const TensorInfo& norm = checkpoint.at("model.norm.weight");
  std::vector<std::byte> bytes(norm.bytes() + 1);
  CHECK_THAT(refusal_of([&] { checkpoint.read(norm, bytes); }),
             is_wrong_usage("model.norm.weight", fmt::format("has {} bytes", norm.bytes()),
                            fmt::format("{} requested", bytes.size())));
}

TEST_CASE("a missing tensor is reported with the checkpoint's name", "[formats]") {
  const Checkpoint checkpoint = open_checkpoint(golden("llama"));
  CHECK(checkpoint.find("nothing") == nullptr);
  CHECK_THAT(refusal_of([&] { checkpoint.at("no\nthing"); }),
             is_bad_input("golden/llama", R"(tensor no\x0athing is missing)"));
}

}  // namespace
}  // namespace regroup

// What a GGUF file loses on the way to a Hugging Face directory and back: nothing of its metadata.
#include <algorithm>
#include <set>

#include <catch2/catch_test_macros.hpp>

#include "converter/convert/model_card.h"
#include "converter/convert/target.h"
#include "formats/base/json.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/gguf.h"
#include "tests/converter/conversion.h"
#include "tests/converter/convert/converted.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// The golden Llama as a GGUF file with a tokenizer that splits as `pre` says, and with more keys.
fs::path put_named_gguf(const fs::path& path, std::string_view pre) {
  const Checkpoint checkpoint = open_checkpoint(golden("gguf") / "llama.gguf");
  GgufMetadata metadata = open_gguf(golden("gguf") / "llama.gguf").metadata;
  metadata.set_string("general.name", "A name");
  metadata.set_string("general.license", "apache-2.0");
  const std::vector<std::string> languages{"en", "no"};
  metadata.set_array("general.languages", languages);
  metadata.set_string("general.repo_url", "https://huggingface.co/acme/a-name");
  metadata.set({"general.odd", GgufType::kU8, "\x07"});
  metadata.set_string("acme.note", "kept");
  metadata.set_string("tokenizer.ggml.pre", pre);
  metadata.set_string("tokenizer.chat_template", "{{ messages }}");
  metadata.set_array("tokenizer.ggml.merges", std::span<const std::string>());
  metadata.set_u32("tokenizer.ggml.eos_token_id", 7);
  std::vector<OutputTensor> outputs;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    outputs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  GgufWriter writer(path, metadata, outputs);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    writer.copy(tensor.name, checkpoint, tensor);
  }
  writer.finish();
  return path;
}

// The keys of `before` that `after` lacks or has with other bytes.
std::set<std::string> lost_keys(const fs::path& before, const fs::path& after) {
  const GgufMetadata old_keys = open_gguf(before).metadata, new_keys = open_gguf(after).metadata;
  std::set<std::string> lost;
  for (const GgufMetadata::Entry& entry : old_keys.entries()) {
    const GgufMetadata::Entry* found = new_keys.find(entry.key);
    if (found == nullptr || found->type != entry.type || found->bytes != entry.bytes) {
      lost.insert(entry.key);
    }
  }
  return lost;
}

bool has_note(const std::vector<std::string>& notes, std::string_view text) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

const std::set<std::string> kOfWeights{"general.file_type"};

}  // namespace

TEST_CASE("GGUF to safetensors and back keeps every key that does not describe the weights",
          "[converter]") {
  const TemporaryDirectory directory;
  for (const std::string pre : {"smollm", "llama-bpe", "not-known"}) {
    CAPTURE(pre);
    const fs::path source = put_named_gguf(directory / (pre + ".gguf"), pre);
    convert(source, directory / pre, {.container = Container::kSafetensors, .dtype = DType::kF32});
    CHECK(fs::exists(directory / pre / "tokenizer.json") == (pre != "not-known"));
    const fs::path grouped = directory / (pre + "-1");
    convert(directory / pre, grouped, {.kv_heads = {1}});
    for (const fs::path& from : {directory / pre, grouped}) {
      const fs::path back = from.string() + "-back.gguf";
      const auto plan = plan_conversion(open_model(from), {.container = Container::kGguf});
      CHECK_FALSE(has_note(plan.notes, "tokenizer"));
      convert(from, back, {.container = Container::kGguf});
      std::set<std::string> lost = lost_keys(source, back);
      lost.erase("llama.attention.head_count_kv");
      CHECK(lost == kOfWeights);
    }
  }
}

TEST_CASE("a directory made from a GGUF file has its tokenizer's settings", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = put_named_gguf(directory / "in.gguf", "llama-bpe");
  convert(source, directory / "out", {.container = Container::kSafetensors, .dtype = DType::kF32});
  const auto object = [&](const char* name) {
    return parse_json_object(bytes_of_file(directory / "out" / name), name);
  };
  const std::string card = bytes_of_file(directory / "out/README.md");
  CHECK(card.find("base_model: acme/a-name\n") != std::string::npos);
  CHECK(card.find("license: apache-2.0\nlanguage:\n- en\n- \"no\"\n") != std::string::npos);
  CHECK(object("config.json")["eos_token_id"] == 7);
  CHECK(object("generation_config.json")["eos_token_id"] == 7);
  CHECK(object("tokenizer_config.json")["eos_token"] == "token 7");
  CHECK(object("tokenizer_config.json")["chat_template"] == "{{ messages }}");
  CHECK(object("tokenizer.json")["model"]["ignore_merges"] == true);
}

TEST_CASE("a GGUF file says what the card of its source and the hub's cache say", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path snapshot = directory / "models--acme--tiny-1" / "snapshots" / "abc";
  put_model(snapshot, golden_model("llama_mha"));
  put_file(snapshot / "README.md",
           "---\nlicense: mit\nlanguage:\n- en\n- de\ntags:\n- code\n- awq\n---\n# Tiny\n");
  const auto plan =
      plan_conversion(open_model(snapshot), {.kv_heads = {3}, .container = Container::kGguf});
  for (const auto& [key, text] :
       {std::pair{"general.name", "tiny-1"},
        {"general.type", "model"},
        {"general.license", "mit"},
        {"general.base_model.0.name", "tiny-1"},
        {"general.base_model.0.organization", "acme"},
        {"general.base_model.0.repo_url", "https://huggingface.co/acme/tiny-1"}}) {
    CHECK(plan.gguf->text(key) == text);
  }
  using Words = std::vector<std::string_view>;
  CHECK(plan.gguf->array("general.languages")->strings() == Words{"en", "de"});
  CHECK(plan.gguf->array("general.tags")->strings() == Words{"code"});
  CHECK(plan.gguf->text("general.size_label")->ends_with("K"));

  // They describe the model to people: changing them since is no difference to verify.
  convert(snapshot, directory / "a.gguf", {.kv_heads = {3}, .container = Container::kGguf});
  put_file(snapshot / "README.md", "---\nlicense: gpl\n---\n");
  CHECK(verified(snapshot, directory / "a.gguf").passed());
}

TEST_CASE("a size label has two digits or more", "[converter]") {
  GgufMetadata gguf;
  ModelSpec spec = spec_of(golden_model("llama_mha"));
  const auto label_with = [&](std::int64_t vocabulary) {
    spec.vocab_size = vocabulary;
    set_size_label(gguf, spec);
    return std::string(*gguf.text("general.size_label"));
  };
  const auto width = static_cast<double>(spec.hidden_size);
  CHECK(label_with(static_cast<std::int64_t>(134.4e6 / width)).ends_with("M"));
  CHECK(label_with(static_cast<std::int64_t>(70e9 / width)).ends_with("B"));
}

TEST_CASE("a tokenizer that changed since is not replaced by the GGUF file's", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = put_named_gguf(directory / "in.gguf", "smollm");
  convert(source, directory / "out", {.container = Container::kSafetensors, .dtype = DType::kF32});
  Json tokenizer = parse_json_object(bytes_of_file(directory / "out" / "tokenizer.json"), "");
  tokenizer["added_tokens"].push_back({{"id", 3}, {"content", "token 3"}, {"special", true}});
  put_file(directory / "out" / "tokenizer.json", tokenizer.dump());
  const auto plan = plan_conversion(open_model(directory / "out"), {.container = Container::kGguf});
  CHECK(has_note(plan.notes, "directory's own files"));
  const auto types = plan.gguf->array("tokenizer.ggml.token_type")->integers();
  CHECK(types->at(3) == 3);
  CHECK(plan.gguf->text("general.license") == "apache-2.0");
}

}  // namespace regroup

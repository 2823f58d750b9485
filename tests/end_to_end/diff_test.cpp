// regroup diff and regroup verify as programs.
#include <functional>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

ProgramResult diff(const fs::path& a, const fs::path& b, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"diff", a.string(), b.string(), "-q"});
  return run_program(more);
}

fs::path converted(const fs::path& source, const fs::path& destination,
                   std::vector<std::string> more) {
  more.insert(more.begin(), {"convert", source.string(), destination.string(), "-q"});
  CHECK(run_program(more).exit_code == 0);
  return destination;
}

TEST_CASE("a model does not differ from its copy in other shards or containers", "[end_to_end]") {
  const TemporaryDirectory directory;
  const TinyModel model = tiny_bloom();
  put_model(directory / "a", model);
  put_sharded_model(directory / "b", model, 3);
  const ProgramResult same = diff(directory / "a", directory / "b");
  CHECK(same.exit_code == 0);
  CHECK_THAT(same.out, ContainsSubstring("no difference"));
  const fs::path torch = converted(directory / "a", directory / "t", {"--to", "torch"});
  const Json report = diff(directory / "a", torch, {"--json"}).json();
  CHECK(report["tensors"].empty());
}

// A model, and a copy with an added, a removed, a reshaped, a retyped and a changed tensor and two
// changed settings.
void put_two_models(const TemporaryDirectory& directory) {
  TinyModel model = tiny_llama();
  put_model(directory / "a", model);
  model.remove("lm_head.weight");
  model.tensors.push_back(varied_tensor("new.weight", DType::kF32, {2}));
  BuiltTensor& norm = model.tensor("model.norm.weight");
  std::vector<double> values = values_of(norm);
  values[2] += 0.5;
  norm = tensor_of(norm.name, norm.dtype, norm.shape, values);
  BuiltTensor& first = model.tensor("model.layers.0.input_layernorm.weight");
  first = tensor_of(first.name, DType::kBF16, first.shape, values_of(first));
  BuiltTensor& k = model.tensor("model.layers.1.self_attn.k_proj.weight");
  k = varied_tensor(k.name, DType::kF32, {8, 6});
  model.set("num_key_value_heads", "[12, 4]").set("rope_scaling", "{\"factor\": 2}");
  put_model(directory / "b", model);
}

TEST_CASE("diff counts added and removed and reshaped and retyped and changed tensors",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  put_two_models(directory);
  const ProgramResult result = diff(directory / "a", directory / "b");
  CHECK(result.exit_code == 5);
  CHECK(result.one_line_of_error());
  CHECK_THAT(result.err,
             ContainsSubstring("1 tensor added, 1 removed, 1 of another shape, 1 of another dtype, "
                               "1 of other values, 2 settings"));
  CHECK_THAT(result.out, ContainsSubstring("F32 [24, 6] -> [8, 6]"));
  CHECK_THAT(result.out, ContainsSubstring("F32 -> BF16 [6]"));
}

TEST_CASE("diff reports the changed values of each tensor as JSON", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_two_models(directory);
  const Json report = diff(directory / "a", directory / "b", {"--json"}).json();
  CHECK(report["same"] == false);
  REQUIRE(report["tensors"].size() == 5);
  for (const Json& tensor : report["tensors"]) {
    if (tensor["differs"] == "values") {
      CHECK(tensor["name"] == "model.norm.weight");
      CHECK(tensor["largest_difference"] == 0.5);
      CHECK(tensor["mean_difference"].get<double>() == 0.5 / 6);
      CHECK(tensor["different_elements"] == 1);
    }
  }
  CHECK(report["settings"][0]["path"] == "num_key_value_heads");
  CHECK(report["settings"][1]["path"] == "rope_scaling");
}

TEST_CASE("diff compares only the tensors that match the filter", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_model(directory / "a", tiny_llama());
  const fs::path b = converted(directory / "a", directory / "b", {"--kv-heads", "4"});
  const auto names = [&](const char* filter) {
    return diff(directory / "a" / "model.safetensors", b / "model.safetensors",
                {"--json", "--filter", filter})
        .json()["tensors"];
  };
  CHECK(names("*.mlp.*").empty());
  CHECK(names("*.k_proj.*").size() == 2);
  CHECK(names("*").size() == 4);
  const ProgramResult nothing = diff(directory / "a", directory / "a", {"--filter", "*.k_proj"});
  CHECK(nothing.exit_code == 2);
  CHECK_THAT(nothing.err, ContainsSubstring("no tensor is named \"*.k_proj\""));
}

TEST_CASE("diff decodes different dtypes including quantised blocks", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path a = converted(golden("llama_mha"), directory / "a.gguf", {"--to", "gguf"});
  const fs::path b = converted(golden("llama_mha"), directory / "b.gguf",
                               {"--to", "gguf", "--dtype", "fp16", "--skip-logits-check"});
  const Json report = diff(a, b, {"--json"}).json();
  REQUIRE_FALSE(report["tensors"].empty());
  for (const Json& tensor : report["tensors"]) {
    CHECK(tensor["differs"] == "dtype");
    CHECK(tensor["cosine"].get<double>() > 0.9999);
  }
  CHECK(diff(golden("gguf/llama.gguf"), golden("gguf/llama.gguf")).exit_code == 0);
  const ProgramResult forms =
      run_program({"diff", golden("llama").string(), golden("gguf/llama.gguf").string()});
  CHECK_THAT(forms.err, ContainsSubstring("no tensor has the same name in both"));
}

TEST_CASE("verify passes a conversion and names later changes", "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path source = put_model(directory / "source", tiny_bloom());
  const fs::path result = converted(source, directory / "result", {"--kv-heads", "3"});
  const auto verify = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"verify", source.string(), result.string(), "-q"});
    return run_program(more);
  };
  const ProgramResult passed = verify();
  CHECK(passed.exit_code == 0);
  CHECK_THAT(passed.out, ContainsSubstring("verified: "));
  CHECK(verify({"--json"}).json()["passed"] == true);

  std::string file = bytes_of_file(result / "model.safetensors");
  file.back() = static_cast<char>(file.back() ^ 1);
  put_file(result / "model.safetensors", file);
  const ProgramResult failed = verify();
  CHECK(failed.exit_code == 5);
  CHECK(failed.one_line_of_error());
  CHECK_THAT(failed.err, ContainsSubstring("is not what its recorded conversion makes of"));
  CHECK(verify({"--json"}).json()["tensors"].size() == 1);
}

// Changes the bytes of one tensor of model.safetensors.
void damage(const fs::path& model, const std::string& tensor,
            const std::function<void(std::string&)>& change) {
  const Checkpoint checkpoint = open_checkpoint(model);
  const TensorInfo& info = checkpoint.at(tensor);
  std::string file = bytes_of_file(model / "model.safetensors");
  std::string bytes = file.substr(info.begin, info.end - info.begin);
  change(bytes);
  put_file(model / "model.safetensors", file.replace(info.begin, bytes.size(), bytes));
}

void change_config(const fs::path& model, const std::function<void(Json&)>& change) {
  Json config = Json::parse(bytes_of_file(model / "config.json"));
  change(config);
  put_file(model / "config.json", config.dump(2));
}

TEST_CASE(
    "diff and verify detect a flipped bit and swapped groups and wrong slopes and a wrong config",
    "[end_to_end]") {
  constexpr const char* kCopied = "transformer.h.0.mlp.dense_4h_to_h.weight";
  constexpr const char* kPooled = "transformer.h.1.self_attention.query_key_value.weight";
  const auto flip = [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; };
  const auto swap_groups = [](std::string& bytes) {  // four of equal size in sequence
    const std::size_t group = bytes.size() / 4;
    bytes = bytes.substr(group, group) + bytes.substr(0, group) + bytes.substr(2 * group);
  };
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> damages{
      {kCopied, [&](const fs::path& model) { damage(model, kCopied, flip); }},
      {kPooled, [&](const fs::path& model) { damage(model, kPooled, flip); }},
      {kPooled, [&](const fs::path& model) { damage(model, kPooled, swap_groups); }},
      {"regroup.alibi.slopes[3]",
       [](const fs::path& model) {
         change_config(model, [](Json& config) { config["regroup"]["alibi"]["slopes"][3] = 0.2; });
       }},
      {"layer_norm_epsilon", [](const fs::path& model) {
         change_config(model, [](Json& config) { config["layer_norm_epsilon"] = 1e-6; });
       }}};
  const TemporaryDirectory directory;
  const fs::path source = put_model(directory / "source", tiny_bloom());
  const fs::path result = converted(source, directory / "result", {"--kv-heads", "4"});
  for (const auto& [named, change] : damages) {
    CAPTURE(named);
    const fs::path damaged = directory / "damaged";
    fs::remove_all(damaged);
    fs::copy(result, damaged);
    CHECK(diff(result, damaged).exit_code == 0);
    change(damaged);
    const ProgramResult different = diff(result, damaged);
    CHECK(different.exit_code == 5);
    CHECK_THAT(different.out, ContainsSubstring(named));
    const ProgramResult wrong = run_program({"verify", source.string(), damaged.string(), "-q"});
    CHECK(wrong.exit_code == 5);
    CHECK_THAT(wrong.out, ContainsSubstring(named));
  }
}

TEST_CASE("diff counts the facts of a record and shows all other settings", "[end_to_end]") {
  const TemporaryDirectory directory;
  // The slopes are part of the model, also where one model has no record.
  const fs::path bloom = put_model(directory / "bloom", tiny_bloom());
  const fs::path slopes = converted(bloom, directory / "slopes", {"--kv-heads", "4"});
  fs::remove(slopes / "model.safetensors");
  fs::copy(bloom / "model.safetensors", slopes / "model.safetensors");
  CHECK_THAT(diff(bloom, slopes).out,
             ContainsSubstring("regroup.alibi") && ContainsSubstring("facts that differ"));
  // A GGUF file's copy of the source's config is no fact.
  const fs::path llama = put_model(directory / "llama", tiny_llama());
  const fs::path other = put_model(directory / "other", tiny_llama());
  change_config(other, [](Json& config) { config["attention_dropout"] = 0.25; });
  const std::vector<std::string> gguf{"--to", "gguf", "--kv-heads", "4"};
  const ProgramResult found = diff(converted(llama, directory / "1.gguf", gguf),
                                   converted(other, directory / "2.gguf", gguf));
  CHECK(found.exit_code == 5);
  CHECK_THAT(found.out, ContainsSubstring("regroup.config"));
}

TEST_CASE("diff shows every tensor, also those whose names differ by a number only",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const auto file = [&](const char* name, const Shape& shape) {
    std::vector<BuiltTensor> tensors;
    for (const char* tensor : {"w", "w1", "w2", "w.0.a", "w.01.a", "w.7.b"}) {
      tensors.push_back(varied_tensor(tensor, DType::kF32, shape));
    }
    put_checkpoint(directory / name, tensors);
    return directory / name;
  };
  const std::string text = diff(file("a.safetensors", {2}), file("b.safetensors", {3})).out;
  for (const char* row : {" w  ", " w1-2  ", " w.0.a ", " w.01.a ", " w.7.b "}) {
    CHECK_THAT(text, ContainsSubstring(row));
  }
}

TEST_CASE("verify refuses a model without a conversion record", "[end_to_end]") {
  const ProgramResult result =
      run_program({"verify", golden("llama_mha").string(), golden("llama_mha").string()});
  CHECK(result.exit_code == 2);
  CHECK(result.one_line_of_error());
}

}  // namespace
}  // namespace regroup

// What a model's directory has of code, and what of it is regroup's.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/families/loader_code.h"
#include "formats/families/loader_files.h"
#include "formats/model/model.h"
#include "formats/model/model_directory.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

constexpr const char* kBloom = "modeling_regroup_bloom.py";

std::string_view text_of_loader(std::string_view name) {
  for (const LoaderFile& file : loader_files()) {
    if (file.name == name) {
      return file.text;
    }
  }
  FAIL("no such loader");
  return "";
}

DirectoryCode code_of(const fs::path& directory, const std::string& config) {
  return code_in(parse_json_object(config, ""), directory, companions_of(directory),
                 carried_files(directory));
}

// "place = code" of each.
std::vector<std::string> names_in(const DirectoryCode& code) {
  std::vector<std::string> names;
  for (const ForeignCode& each : code.foreign) {
    names.push_back(each.place + (each.code.empty() ? "" : " = " + each.code));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("code counts as regroup's if both files are, byte for byte", "[formats]") {
  const TemporaryDirectory directory;
  const std::string config =
      R"({"auto_map": {"AutoModel": "modeling_regroup_bloom.RegroupBloomModel",
      "AutoModelForCausalLM": "modeling_regroup_bloom.RegroupBloomForCausalLM"}})";
  CHECK_FALSE(code_of(directory.path(), config).carried);  // no files
  put_file(directory / kBloom, std::string(text_of_loader(kBloom)));
  CHECK_FALSE(code_of(directory.path(), config).carried);
  CHECK(code_of(directory.path(), config).foreign.size() == 2);
  const std::string shared(text_of_loader(kHeadsFile));
  put_file(directory / kHeadsFile, shared);
  CHECK(code_of(directory.path(), config).carried);
  CHECK(code_of(directory.path(), config).foreign.empty());
  put_file(directory / kHeadsFile, shared.substr(1) + "#");  // of the same length
  CHECK_FALSE(code_of(directory.path(), config).carried);
  CHECK(names_in(code_of(directory.path(), config)).back() == "regroup_heads.py");
}

TEST_CASE("entries are regroup's only if they name its classes in this directory", "[formats]") {
  const TemporaryDirectory directory;
  for (const std::string_view name : {std::string_view(kBloom), kHeadsFile}) {
    put_file(directory / name, std::string(text_of_loader(name)));
  }
  for (const char* entry :
       {"evil/repo--modeling_regroup_bloom.RegroupBloomModel", "modeling_regroup_bloom.Evil",
        "modeling_regroup_bloom", "modeling_regroup_llama.Evil", "evil.RegroupBloomModel", ".",
        "modeling_regroup_bloom.RegroupGPT2ForTokenClassification",
        "modeling_regroup_gpt2.RegroupGPT2ForTokenClassification"}) {
    CAPTURE(entry);
    const Json config = {{"auto_map", {{"AutoModel", entry}}}};
    const DirectoryCode code = code_of(directory.path(), config.dump());
    CHECK_FALSE(code.carried);
    CHECK(names_in(code) == Names{std::string("config.json: auto_map.AutoModel = ") + entry});
  }
  const Json others = {{"auto_map",
                        {{"AutoModel", "modeling_regroup_bloom.RegroupBloomModel"},
                         {"AutoTokenizer", {"evil.Evil", nullptr}}}}};
  CHECK(code_of(directory.path(), others.dump()).carried);
  const Json made = {{"auto_map",
                      {{"AutoModelForTokenClassification",
                        "modeling_regroup_bloom.RegroupBloomForTokenClassification"}}}};
  CHECK(code_of(directory.path(), made.dump()).carried);
  CHECK(names_in(code_of(directory.path(), others.dump())) ==
        Names{"config.json: auto_map.AutoTokenizer = evil.Evil"});
  CHECK_FALSE(code_of(directory.path(), R"({"auto_map": ["a.B"]})").carried);
}

TEST_CASE("every place from which loaders take code is listed", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer_config.json", R"({"auto_map": ["a.Slow", "b.Fast"]})");
  put_file(directory / "processor_config.json", R"({"auto_map": {"AutoProcessor": "e/r--p.P"}})");
  put_file(directory / "sentence_bert_config.json",
           R"({"model_args": {"trust_remote_code": true}, "x": {"trust_remote_code": false}})");
  put_file(directory / "modules.json",
           R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
               {"path": "1_Evil", "type": "evil.Module"}])");
  put_file(directory / "1_Evil/pytorch_model.bin", "");
  put_file(directory / "1_Evil/evil.py", "");
  put_file(directory / "generation_config.json", R"({"auto_map": 1, "auto_map": "x.Y"})");
  put_file(directory / "notes.json", R"({"auto_map": "not read by loaders"})");
  put_file(directory / "hidden.dat", "\x80\x04}.");
  put_file(directory / "code.py", "");
  const std::string config =
      R"({"custom_pipelines": {"task": {"impl": "p.Pipe", "pt": ["AutoModel"]}},
          "text_config": {"auto_map": {"AutoModel": "n.N"}}, "_attn_implementation": "evil/kernel",
          "attn_implementation": "sdpa", "type": "llama"})";
  const DirectoryCode code = code_of(directory.path(), config);
  CHECK(names_in(code) == Names{"config.json: custom_pipelines.task.impl = p.Pipe",
                                "config.json: text_config.auto_map.AutoModel = n.N",
                                "config.json: _attn_implementation = evil/kernel", "1_Evil/evil.py",
                                "1_Evil/pytorch_model.bin", "code.py",
                                "generation_config.json = not readable here", "hidden.dat",
                                "modules.json: type = evil.Module",
                                "processor_config.json: auto_map.AutoProcessor = e/r--p.P",
                                "sentence_bert_config.json: model_args.trust_remote_code = true",
                                "tokenizer_config.json: auto_map = a.Slow",
                                "tokenizer_config.json: auto_map = b.Fast"});
  CHECK_FALSE(code.carried);
  REQUIRE(notes_on_code(code).size() == 1);
  CHECK_THAT(notes_on_code(code).front(),
             ContainsSubstring("n.N; ") && ContainsSubstring("code.py;"));
  CHECK(notes_on_code({}).empty());
}

}  // namespace
}  // namespace regroup

// Which lines of a card's metadata a result takes over.
#include <catch2/catch_test_macros.hpp>

#include "converter/convert/model_card.h"

namespace regroup {
namespace {

TEST_CASE("license, language, task, library, datasets and base model of a card last",
          "[converter]") {
  CHECK(lasting_metadata("---\nlicense: apache-2.0\ndatasets:\n- c4\nlanguage:\n- en\n  - de\n"
                         "tags: [a, b]\nbase_model: org/base\nlicense_link: https://x.org/a_b-c\n"
                         "# a comment\n\npipeline_tag: 'text-generation'\r\n---\n# Title\n") ==
        "license: apache-2.0\ndatasets:\n- c4\nlanguage:\n- en\n- de\ntags:\n- a\n- b\nbase_model: "
        "org/base\n"
        "license_link: https://x.org/a_b-c\npipeline_tag: text-generation\n");
}

TEST_CASE("of a list the plain words last, and of libraries those that load a result",
          "[converter]") {
  const std::string kept = lasting_metadata(
      "---\ntags:\n- llama # the first\n- text generation\n- \"x\\ny\"\nlibrary_name: MLX\n"
      "datasets: [a/b, 'c d', e]\nlanguage: en\nlicense:\n  nested: mit\n---\n");
  CHECK(kept == "tags:\n- llama\ndatasets:\n- a/b\n- e\nlanguage: en\n");
  CHECK(metadata_values(kept, "datasets") == std::vector<std::string>{"a/b", "e"});
  CHECK(metadata_values("tags: chat\n", "tags") == std::vector<std::string>{"chat"});
  for (const char* format : {"gguf", "GPTQ", "4-bit"}) {
    CHECK(is_format_word(format));
  }
}

TEST_CASE("a GGUF file's license, languages, name and repository last", "[converter]") {
  GgufMetadata gguf;
  CHECK(lasting_metadata(gguf).empty());
  gguf.set_string("general.name", "A Model 3.1");
  gguf.set_string("general.license", "other");
  gguf.set_string("general.license.name", "acme-1");
  gguf.set_string("general.license.link", "mit\nlibrary_name: evil");
  const std::vector<std::string> languages{"en", "no", "de\nlibrary_name: evil"};
  gguf.set_array("general.languages", languages);
  gguf.set_string("general.base_model.0.repo_url", "https://huggingface.co/acme/older");
  CHECK(lasting_metadata(gguf) ==
        "base_model: acme/older\nmodel_name: A-Model-3.1\nlicense: other\nlicense_name: acme-1\n"
        "language:\n- en\n- \"no\"\n");
  gguf.set_string("general.repo_url", "https://huggingface.co/acme/own");
  gguf.set_string("general.name", "<script>");
  gguf.set_u32("general.license", 3);
  gguf.set_u32("general.languages", 3);
  CHECK(lasting_metadata(gguf) == "base_model: acme/own\nlicense_name: acme-1\n");
}

TEST_CASE("a card without metadata between two fences has none", "[converter]") {
  for (const char* card : {"", "---", "---\n", "# Title\n---\nlicense: mit\n---\n",
                           "---\nlicense: mit\n", "license: mit\n"}) {
    CAPTURE(card);
    CHECK(lasting_metadata(card).empty());
  }
}

TEST_CASE("values that are not plain words are left out", "[converter]") {
  for (const char* entry :
       {"license: [mit, a b]", "license: a: b", "license: &anchor mit", "license: [mit",
        "license: \"mit", "license: |\n  mit", "license:", "license:\n- a\n- b: c",
        "license: mit\n- apache-2.0", "license: <script>", "license: a\n  b",
        "license: x:", "license: !!python/object:os.system"}) {
    CAPTURE(entry);
    CHECK(lasting_metadata(std::string("---\n") + entry + "\nlicense_name: kept\n---\n") ==
          "license_name: kept\n");
  }
  CHECK(lasting_metadata("---\nlicense: mit\nlicense: gpl\n---\n") == "license: mit\n");
  CHECK(lasting_metadata("---\nlicense: [mit, gpl] # two\n---\n") == "license:\n- mit\n- gpl\n");
  CHECK(lasting_metadata("---\nlicense:\n- mit\n- gpl\n---\n") == "license:\n- mit\n- gpl\n");
  CHECK(lasting_metadata("---\nlicense: " + std::string(201, 'a') + "\n---\n").empty());
}

TEST_CASE("values that YAML would read as something else than text are quoted", "[converter]") {
  for (const char* value :
       {"yes",     "No",   "ON",        "off",        "y",
        "N",       "true", "False",     "null",       "NULL",
        "0x10",    "0o17", "0b1",       "1e3",        "12",
        "1.5",     "1:30", "190:20:30", "2024-01-01", "2001-12-14t21:59:43.10-05:00",
        "685_230", "1.",   "0"}) {
    CAPTURE(value);
    const std::string quoted = "\"" + std::string(value) + "\"";
    CHECK(yaml_text(value) == quoted);
    const std::string card = std::string("---\nlicense: ") + value + "\nlanguage:\n- '" + value +
                             "'\n- " + quoted + "\n---\n";
    CHECK(lasting_metadata(card) ==
          "license: " + quoted + "\nlanguage:\n- " + quoted + "\n- " + quoted + "\n");
  }
  for (const char* value : {"~",   "",     "a: b", "a ",    " a", "#a", "a #b", "*a",  "&a", "!a",
                            "- a", "[a]",  "{a}",  "|",     ">",  "@a", "`a`",  "%a",  "?",  "<<",
                            "=",   ".inf", ".NaN", "-.inf", "+1", "-1", "a:",   "a, b"}) {
    CAPTURE(value);
    CHECK(yaml_text(value) == "\"" + std::string(value) + "\"");
  }
  CHECK(yaml_text("a\"b\\c\nd\x7f\xc3\xa9\xff") == R"("a\"b\\c\nd\u007f\u00e9\ufffd")");
  for (const char* value : {"mit", "apache-2.0", "org/name", "nob", "e3", "https://x.org/a?b=c"}) {
    CHECK(yaml_text(value) == value);
  }
}

TEST_CASE("a key is removed with its list", "[converter]") {
  const std::string metadata = "base_model:\n- a/b\n- c/d\nlicense: mit\n";
  CHECK(without_metadata(metadata, "base_model") == "license: mit\n");
  CHECK(without_metadata(metadata, "base") == metadata);
  CHECK(has_metadata(metadata, "license"));
  CHECK_FALSE(has_metadata(metadata, "language"));
}

}  // namespace
}  // namespace regroup

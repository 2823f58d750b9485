// Tokenizers of each kind against the ids of Python's `tokenizers` (tests/golden/tokenizers).
#include <algorithm>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "tests/file_tree.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

constexpr const char* kKinds[] = {"albert", "bert",    "bert_cased", "bloom",     "clip",
                                  "falcon", "gemma",   "gpt2",       "gpt_neox",  "llama2",
                                  "llama3", "roberta", "t5",         "word_level"};

using GoldenIds = std::vector<std::uint32_t>;

nlohmann::json golden_of(const std::string& kind) {
  const std::filesystem::path path = golden("tokenizers") / (kind + ".json");
  return parse_sorted_json_object(read_text(path, 1U << 20), path.string());
}

GoldenIds encoded(const Tokenizer& tokenizer, std::string_view text) {
  GoldenIds ids;
  tokenizer.encode(text, true, ids);
  return ids;
}

// The number of texts whose ids are not the expected ones.
int differences(const nlohmann::json& tokenizer, const nlohmann::json& cases) {
  const auto opened = make_json_tokenizer(tokenizer, "golden");
  return static_cast<int>(
      std::count_if(cases.begin(), cases.end(), [&](const nlohmann::json& each) {
        return encoded(*opened, each["text"].get<std::string>()) != each["ids"].get<GoldenIds>();
      }));
}

}  // namespace

TEST_CASE("each kind of tokenizer.json gives the ids of the tokenizers package", "[tokens]") {
  for (const std::string kind : kKinds) {
    const nlohmann::json golden = golden_of(kind);
    const auto tokenizer = make_json_tokenizer(golden["tokenizer"], kind);
    for (const nlohmann::json& each : golden["cases"]) {
      const auto text = each["text"].get<std::string>();
      const auto expected = each["ids"].get<GoldenIds>();
      CAPTURE(kind, text);
      CHECK(encoded(*tokenizer, text) == expected);
      CHECK(encoded(*tokenizer, text) == expected);  // now from the cache
      CHECK(std::all_of(expected.begin(), expected.end(), [&](std::uint32_t id) {
        return id < static_cast<std::uint64_t>(tokenizer->vocabulary());
      }));
    }
  }
}

TEST_CASE("each kind of tokenizer.json decodes as the tokenizers package does", "[tokens]") {
  const nlohmann::json all = golden_of("decoded");
  for (const std::string kind : kKinds) {
    nlohmann::json description = golden_of(kind)["tokenizer"];
    description["decoder"] = all[kind]["decoder"];
    const auto tokenizer = make_json_tokenizer(description, kind);
    for (const nlohmann::json& each : all[kind]["cases"]) {
      const auto ids = each["ids"].get<GoldenIds>();
      CAPTURE(kind, ids);
      CHECK(tokenizer->decode(ids) == each["text"].get<std::string>());
    }
  }
}

TEST_CASE("the golden texts exercise each part of a tokenizer", "[tokens]") {
  for (const std::string kind : kKinds) {
    const nlohmann::json golden = golden_of(kind);
    for (const char* part : {"normalizer", "pre_tokenizer", "added_tokens"}) {
      nlohmann::json changed = golden["tokenizer"];
      const bool has_ordinary_tokens =
          std::any_of(changed["added_tokens"].begin(), changed["added_tokens"].end(),
                      [](const nlohmann::json& token) { return !token["special"].get<bool>(); });
      if (changed[part].is_null() ||
          (part == std::string("added_tokens") && !has_ordinary_tokens)) {
        continue;
      }
      changed[part] = nullptr;
      CAPTURE(kind, part);
      // Gemma's splits at spaces, of which the normalizer leaves none.
      const bool without_effect = kind == "gemma" && part == std::string("pre_tokenizer");
      CHECK((differences(changed, golden["cases"]) == 0) == without_effect);
    }
    CHECK(differences(golden["tokenizer"], golden["cases"]) == 0);
  }
}

TEST_CASE("the post-processor says what each document begins and ends with", "[tokens]") {
  for (const std::string kind : kKinds) {
    const nlohmann::json golden = golden_of(kind);
    const DocumentEnds ends = make_json_tokenizer(golden["tokenizer"], kind)->ends();
    CAPTURE(kind);
    const auto listed = [](bool added, const std::optional<std::int64_t>& id) {
      return added ? nlohmann::json{*id} : nlohmann::json::array();
    };
    CHECK(listed(ends.add_bos, ends.bos) == golden["first"]);
    CHECK(listed(ends.add_eos, ends.eos) == golden["last"]);
  }
}

TEST_CASE("a document in parts has the ids of the whole", "[tokens]") {
  const std::string text = "The heads of a group share  one cache\n\nand a value";
  for (const std::string kind : kKinds) {
    const auto tokenizer = make_json_tokenizer(golden_of(kind)["tokenizer"], kind);
    const GoldenIds whole = encoded(*tokenizer, text);
    for (const std::size_t cut :
         {text.find(" heads"), text.find(" group"), text.find(" a value")}) {
      GoldenIds ids = encoded(*tokenizer, text.substr(0, cut));
      tokenizer->encode(text.substr(cut), false, ids);
      CAPTURE(kind, cut);
      CHECK(ids == whole);
    }
  }
}

}  // namespace regroup

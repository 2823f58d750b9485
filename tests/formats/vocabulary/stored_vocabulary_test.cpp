// Vocabularies in GGUF metadata: what is read, what is assumed, and hostile ones.
#include <limits>

#include <catch2/catch_test_macros.hpp>

#include "formats/vocabulary/tokenizer_files.h"
#include "formats/vocabulary/vocabulary.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

using Texts = std::vector<std::string>;
using Types = std::vector<std::int32_t>;
using Scores = std::vector<float>;

GgufMetadata metadata_of(std::string_view model, const Texts& tokens, const Types& types,
                         const Scores& scores = {}) {
  GgufMetadata metadata("v.gguf");
  metadata.set_string("tokenizer.ggml.model", model);
  metadata.set_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
  metadata.set_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
  if (!scores.empty()) {
    metadata.set_array("tokenizer.ggml.scores", std::span<const float>(scores));
  }
  return metadata;
}

// "<unk>", "<s>", "</s>", "a", "b", "ab".
GgufMetadata small_llama() {
  return metadata_of("llama", {"<unk>", "<s>", "</s>", "a", "b", "ab"}, {2, 3, 3, 1, 1, 1},
                     {0, 0, 0, -2, -3, -1});
}

nlohmann::json json_of_vocabulary(const GgufMetadata& metadata) {
  return tokenizer_json_of(vocabulary_in(metadata), metadata.where());
}

Error refused(const GgufMetadata& metadata) {
  return refusal_of([&] { json_of_vocabulary(metadata); });
}

}  // namespace

TEST_CASE("what a GGUF vocabulary does not say is what llama.cpp assumes", "[formats]") {
  const Vocabulary llama = vocabulary_in(small_llama());
  CHECK(llama.special_ids ==
        std::map<std::string, std::uint32_t>{{"bos", 1}, {"eos", 2}, {"unk", 0}});
  CHECK(llama.add_bos == true);
  CHECK(llama.add_eos == std::nullopt);
  CHECK(llama.add_space_prefix == true);
  GgufMetadata stated = small_llama();
  stated.set_u32("tokenizer.ggml.bos_token_id", 2);
  stated.set_bool("tokenizer.ggml.add_bos_token", false);
  stated.set_bool("tokenizer.ggml.add_space_prefix", false);
  CHECK(vocabulary_in(stated).special_ids.at("bos") == 2);
  CHECK(vocabulary_in(stated).add_bos == false);
  CHECK(vocabulary_in(stated).add_space_prefix == false);
}

TEST_CASE("SentencePiece's BPE becomes merges and a normalizer that marks spaces", "[formats]") {
  const nlohmann::json made = json_of_vocabulary(small_llama());
  CHECK(made["model"]["merges"] == nlohmann::json{"a b"});
  CHECK(made["model"]["unk_token"] == "<unk>");
  CHECK(made["model"]["byte_fallback"] == false);
  CHECK(made["normalizer"]["normalizers"].size() == 2);
  CHECK(made["added_tokens"].size() == 3);
  CHECK(made["post_processor"]["single"].dump() ==
        R"([{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}])");
  GgufMetadata plain = small_llama();
  plain.set_bool("tokenizer.ggml.add_space_prefix", false);
  CHECK(json_of_vocabulary(plain)["normalizer"]["normalizers"].size() == 1);
}

TEST_CASE("Unigram keeps scores, and WordPiece gets its prefixes back", "[formats]") {
  const nlohmann::json unigram = json_of_vocabulary(
      metadata_of("t5", {"<pad>", "</s>", "<unk>", "\u2581a"}, {3, 3, 2, 1}, {0, 0, 0, -1.5F}));
  CHECK(unigram["model"]["vocab"][3].dump() == "[\"\u2581a\",-1.5]");
  CHECK(unigram["model"]["unk_id"] == 2);
  GgufMetadata bert =
      metadata_of("bert", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"}, {3, 3, 3, 3, 1, 1});
  bert.set_u32("tokenizer.ggml.unknown_token_id", 1);
  bert.set_u32("tokenizer.ggml.cls_token_id", 2);
  bert.set_u32("tokenizer.ggml.seperator_token_id", 3);
  const nlohmann::json words = json_of_vocabulary(bert);
  CHECK(words["model"]["vocab"].dump() ==
        R"({"##b":5,"[CLS]":2,"[PAD]":0,"[SEP]":3,"[UNK]":1,"a":4})");
  CHECK(words["normalizer"]["lowercase"] == true);
  CHECK(words["post_processor"]["single"].size() == 3);
  bert.set_array("tokenizer.ggml.tokens", std::span<const std::string>(Texts{
                                              "[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581A", "b"}));
  CHECK(json_of_vocabulary(bert)["normalizer"]["lowercase"] == false);
  bert.set_bool("tokenizer.ggml.normalizer.lowercase", true);
  CHECK(json_of_vocabulary(bert)["normalizer"]["lowercase"] == true);
}

TEST_CASE("tokens that end a turn end a generation", "[formats]") {
  GgufMetadata metadata = small_llama();
  metadata.set_u32("tokenizer.ggml.eot_token_id", 5);
  const std::vector<NamedText> files = tokenizer_files_of(metadata);
  REQUIRE(files.size() == 3);
  CHECK(files[2].name == "generation_config.json");
  CHECK(nlohmann::json::parse(files[2].text)["eos_token_id"] == nlohmann::json{2, 5});
}

TEST_CASE("scores are written as the nearest shortest decimals", "[formats]") {
  // 8.4221343994140625 is as near to ...063, which the tokenizers package reads as another double.
  const GgufMetadata metadata =
      metadata_of("t5", {"<pad>", "</s>", "<unk>", "\u2581a", "b", "c\"\n"}, {3, 3, 2, 1, 1, 1},
                  {0, 0, 0, -8.4221343994140625F, -3, -1e-20F});
  const std::string text = tokenizer_files_of(metadata)[0].text;
  CHECK(text.find("-8.422134399414062\n") != text.npos);
  CHECK(text.find("-3.0\n") != text.npos);
  CHECK(nlohmann::json::parse(text) == json_of_vocabulary(metadata));
}

TEST_CASE("hostile vocabularies of GGUF files are refused with one line", "[formats]") {
  const auto with = [](const auto& change) {
    GgufMetadata metadata = small_llama();
    change(metadata);
    return refused(metadata);
  };
  const auto scores = [&](const Scores& values) {
    return with(
        [&](auto& m) { m.set_array("tokenizer.ggml.scores", std::span<const float>(values)); });
  };
  const auto tokens = [&](const Texts& values) {
    return with([&](auto& m) {
      m.set_array("tokenizer.ggml.tokens", std::span<const std::string>(values));
    });
  };
  const auto types = [&](const Types& values) {
    return with([&](auto& m) {
      m.set_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(values));
    });
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(scores({0, 0, kNan, 0, 0, 0}), is_bad_input("v.gguf: ", "scores[2] is nan"));
  CHECK_THAT(scores({0, 0}), is_bad_input("a score for each of 6"));
  const auto without = [&](std::string_view key) {
    return with(
        [&](auto& m) { m.remove_if([&](std::string_view other) { return other == key; }); });
  };
  CHECK_THAT(without("tokenizer.ggml.scores"), is_bad_input("a score"));
  CHECK_THAT(without("tokenizer.ggml.token_type"), is_bad_input("a type"));
  CHECK_THAT(types({1, 1}), is_bad_input("a type for each of 6"));
  CHECK_THAT(types({2, 3, 3, 1, 1, 7}), is_bad_input("token_type[5] is 7"));
  CHECK_THAT(types({2, 3, 3, 6, 1, 1}), is_bad_input("1 byte tokens, 0 of the 256"));
  CHECK_THAT(tokens({"a", "b", "c", "d", "e", "\xff"}), is_bad_input("tokens[5] is not UTF-8"));
  CHECK_THAT(tokens({"a", "b", "c", "d", "e", std::string(5000, 'x')}),
             is_bad_input("tokens[5] has 5000 bytes"));
  Texts large;
  while (large.size() < 5000) {
    large.push_back(std::to_string(large.size()) + std::string(4000, 'x'));
  }
  CHECK_THAT(tokens(large), is_bad_input("bytes of text, at most 16777216"));
  CHECK_THAT(tokens({"a", "a", "c", "d", "e", "f"}), is_bad_input("lists a twice"));
  CHECK_THAT(tokens({}), is_bad_input("tokens is empty"));
  CHECK_THAT(with([](auto& m) { m.set_u32("tokenizer.ggml.bos_token_id", 0xffff'ffff); }),
             is_bad_input("the bos token has the id 4294967295", "6 tokens"));
  CHECK_THAT(with([](auto& m) { m.set_string("tokenizer.ggml.eos_token_id", "2"); }),
             is_bad_input("eos_token_id"));
}

}  // namespace regroup

#include "formats/vocabulary/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "formats/vocabulary/gguf_vocabulary.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

namespace {

using nlohmann::json;

// The keys of the other tokens that end a generation, such as the end of a turn.
constexpr std::array<std::string_view, 2> kMoreEnds{"tokenizer.ggml.eot_token_id",
                                                    "tokenizer.ggml.eom_token_id"};

// The class is the generic one: a model's own class would build a tokenizer anew from parts.
json tokenizer_config_of(const Vocabulary& vocabulary) {
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  for (const auto& [role, id] : vocabulary.special_ids) {
    config[role + "_token"] = vocabulary.tokens[id];
  }
  if (vocabulary.add_bos) {
    config["add_bos_token"] = *vocabulary.add_bos;
  }
  if (vocabulary.add_eos) {
    config["add_eos_token"] = *vocabulary.add_eos;
  }
  if (!vocabulary.chat_template.empty()) {
    config["chat_template"] = vocabulary.chat_template;
  }
  return config;
}

json generation_config_of(const Vocabulary& vocabulary, const GgufMetadata& metadata) {
  json config = json::object();
  for (const char* role : {"bos", "eos", "pad"}) {
    const auto id = vocabulary.special_ids.find(role);
    if (id != vocabulary.special_ids.end()) {
      config[fmt::format("{}_token_id", role)] = id->second;
    }
  }
  json ends = json::array();
  if (config.contains("eos_token_id")) {
    ends.push_back(config["eos_token_id"]);
  }
  for (const std::string_view key : kMoreEnds) {
    const auto id = metadata.count(key);
    const bool known = id && *id < static_cast<std::int64_t>(vocabulary.tokens.size());
    if (known && std::find(ends.begin(), ends.end(), json(*id)) == ends.end()) {
      ends.push_back(*id);
    }
  }
  if (ends.size() > 1) {
    config["eos_token_id"] = std::move(ends);
  }
  return config;
}

}  // namespace

std::vector<NamedText> tokenizer_files_of(const GgufMetadata& metadata) {
  const Vocabulary vocabulary = vocabulary_in(metadata);
  const json tokenizer = tokenizer_json_of(vocabulary, metadata.where());
  const auto text_of = [](const json& value) { return value.dump(2) + "\n"; };
  return {{"tokenizer.json", text_of(tokenizer)},
          {"tokenizer_config.json", text_of(tokenizer_config_of(vocabulary))},
          {"generation_config.json", text_of(generation_config_of(vocabulary, metadata))}};
}

namespace {

std::string text_of_role(const Vocabulary& vocabulary, const std::string& role) {
  const auto id = vocabulary.special_ids.find(role);
  return id == vocabulary.special_ids.end() ? "" : vocabulary.tokens[id->second];
}

json added_tokens_of(const Vocabulary& vocabulary) {
  json added = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = static_cast<TokenType>(vocabulary.types[id]);
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (special || type == TokenType::kUserDefined) {
      added.push_back({{"id", id},
                       {"content", vocabulary.tokens[id]},
                       {"special", special},
                       {"normalized", false},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false}});
    }
  }
  return added;
}

TokenizerParts parts_of(Vocabulary& vocabulary, std::string_view where) {
  if (vocabulary.model == "gpt2") {
    return byte_level_parts(vocabulary, where);
  }
  if (vocabulary.model == "llama") {
    return scored_parts(vocabulary, where);
  }
  return vocabulary.model == "t5" ? unigram_parts(vocabulary, where)
                                  : word_piece_parts(vocabulary, where);
}

json post_processor_of(const Vocabulary& vocabulary) {
  const EdgeTokens edges = edge_tokens_of(vocabulary);
  if (edges.first.empty() && edges.last.empty()) {
    return nullptr;
  }
  json single = json::array(), pair = json::array(), special = json::object();
  const auto put = [&](json& list, const std::string& token, int sequence) {
    if (!token.empty()) {
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", sequence}}}});
      const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
      const auto id = static_cast<std::uint64_t>(found - vocabulary.tokens.begin());
      special[token] = {
          {"id", token}, {"ids", json::array({id})}, {"tokens", json::array({token})}};
    }
  };
  const auto put_text = [](json& list, const char* name, int sequence) {
    list.push_back({{"Sequence", {{"id", name}, {"type_id", sequence}}}});
  };
  put(single, edges.first, 0);
  put_text(single, "A", 0);
  put(single, edges.last, 0);
  pair = single;
  const bool bert = vocabulary.model == "bert";
  put(pair, bert ? "" : edges.first, 1);
  put_text(pair, "B", 1);
  put(pair, edges.last, 1);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

}  // namespace

EdgeTokens edge_tokens_of(const Vocabulary& vocabulary) {
  EdgeTokens edges;
  const bool bert = vocabulary.model == "bert";
  if (vocabulary.add_bos.value_or(false)) {
    edges.first =
        text_of_role(vocabulary, bert && vocabulary.special_ids.contains("cls") ? "cls" : "bos");
  }
  if (vocabulary.add_eos.value_or(bert || vocabulary.model == "t5")) {
    edges.last = text_of_role(vocabulary, bert ? "sep" : "eos");
  }
  return edges;
}

json tokenizer_json_of(const Vocabulary& stored, std::string_view where) {
  Vocabulary vocabulary = stored;
  TokenizerParts parts = parts_of(vocabulary, where);
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens_of(vocabulary)},
          {"normalizer", std::move(parts.normalizer)},
          {"pre_tokenizer", std::move(parts.pre_tokenizer)},
          {"post_processor", post_processor_of(vocabulary)},
          {"decoder", std::move(parts.decoder)},
          {"model", std::move(parts.model)}};
}

}  // namespace regroup

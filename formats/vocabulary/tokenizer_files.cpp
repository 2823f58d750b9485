#include "formats/vocabulary/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "formats/vocabulary/gguf_vocabulary.h"
#include "formats/vocabulary/tokenizer_json.h"

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

}  // namespace regroup

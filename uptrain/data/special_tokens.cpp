#include "uptrain/data/special_tokens.h"

#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxTokenizerBytes = 256U << 20;
constexpr std::string_view kPrefix = "<extra_id_";

using SentinelIds = std::map<std::int64_t, std::int64_t>;  // k -> token
using NamedTokens = std::vector<std::pair<std::string, std::int64_t>>;

// The number k of "<extra_id_k>".
std::optional<std::int64_t> sentinel_number(std::string_view text) {
  std::int64_t number = 0;
  if (!text.starts_with(kPrefix) || !text.ends_with('>')) {
    return std::nullopt;
  }
  const char* end = text.data() + text.size() - 1;
  const auto [stopped, fault] = std::from_chars(text.data() + kPrefix.size(), end, number);
  return fault == std::errc() && stopped == end && number >= 0 ? std::optional(number)
                                                               : std::nullopt;
}

void add(NamedTokens& found, const nlohmann::json& text, const nlohmann::json& id) {
  if (text.is_string() && id.is_number_integer()) {
    found.emplace_back(text.get<std::string>(), id.get<std::int64_t>());
  }
}

// Reads {"added_tokens_decoder": {"32099": {"content": "<extra_id_0>", …}, …}}.
void add_from_tokenizer_config(NamedTokens& found, const nlohmann::json& file) {
  const auto tokens = file.find("added_tokens_decoder");
  if (tokens == file.end() || !tokens->is_object()) {
    return;
  }
  for (const auto& [key, token] : tokens->items()) {
    std::int64_t id = 0;
    const auto [stopped, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault == std::errc() && stopped == key.data() + key.size() && token.is_object()) {
      add(found, token.value("content", nlohmann::json()), id);
    }
  }
}

// Reads {"<extra_id_0>": 32099, …}.
void add_from_added_tokens(NamedTokens& found, const nlohmann::json& file) {
  for (const auto& [text, id] : file.items()) {
    add(found, text, id);
  }
}

// Reads {"added_tokens": [{"id": 32099, "content": "<extra_id_0>", …}, …], …}.
void add_from_tokenizer(NamedTokens& found, const nlohmann::json& file) {
  const auto tokens = file.find("added_tokens");
  if (tokens == file.end() || !tokens->is_array()) {
    return;
  }
  for (const nlohmann::json& token : *tokens) {
    if (token.is_object()) {
      add(found, token.value("content", nlohmann::json()), token.value("id", nlohmann::json()));
    }
  }
}

struct TokenizerFile {
  std::filesystem::path path;
  NamedTokens tokens;
};

// The tokens that each tokenizer file of a directory names.
std::vector<TokenizerFile> read_tokenizer_files(const std::filesystem::path& directory) {
  using Reader = void (*)(NamedTokens&, const nlohmann::json&);
  const std::pair<const char*, Reader> files[] = {
      {"tokenizer_config.json", add_from_tokenizer_config},
      {"added_tokens.json", add_from_added_tokens},
      {"tokenizer.json", add_from_tokenizer}};
  std::vector<TokenizerFile> read_files;
  for (const auto& [name, read] : files) {
    const std::filesystem::path path = directory / name;
    if (path_exists(path)) {
      read(read_files.emplace_back(path).tokens,
           parse_sorted_json_object(read_text(path, kMaxTokenizerBytes),
                                    printable(path.string(), 0)));
    }
  }
  return read_files;
}

std::optional<Sentinels> sentinels_in(const SentinelIds& found, const std::filesystem::path& file) {
  const auto first = found.find(0);
  if (first == found.end()) {
    return std::nullopt;
  }
  std::int64_t count = 0;
  for (const auto& [number, id] : found) {
    if (number != count || id != first->second - number) {
      throw_bad_input("{}: <extra_id_{}> is token {}, allowed is {}: they count down from {}",
                      printable(file.string(), 0), number, id, first->second - count,
                      first->second);
    }
    ++count;
  }
  return Sentinels{first->second, count};
}

std::optional<std::int64_t> token_in(const Json& config, const char* key) {
  if (!config.is_object() || !config.contains(key) || !config[key].is_number_integer()) {
    return std::nullopt;
  }
  return config[key].get<std::int64_t>();
}

// The language model's own token, otherwise that of the model that it is a part of.
std::optional<std::int64_t> token_of(const Model& model, const char* key) {
  const Json* part = &model.config;
  for (const std::string& name : model.spec.config_path) {
    part = &part->at(name);
  }
  const auto own = token_in(*part, key);
  return own ? own : token_in(model.config, key);
}

}  // namespace

std::optional<Sentinels> find_sentinels(const std::filesystem::path& directory) {
  for (const TokenizerFile& file : read_tokenizer_files(directory)) {
    SentinelIds found;
    for (const auto& [text, id] : file.tokens) {
      if (const auto number = sentinel_number(text)) {
        found[*number] = id;
      }
    }
    if (const auto sentinels = sentinels_in(found, file.path)) {
      return sentinels;
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> find_mask_token(const std::filesystem::path& directory) {
  for (const TokenizerFile& file : read_tokenizer_files(directory)) {
    for (const auto& [text, id] : file.tokens) {
      if (text == "<mask>") {
        return id;
      }
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> start_token_of(const Model& model) {
  return token_of(model, "bos_token_id");
}

std::optional<std::int64_t> end_token_of(const Model& model) {
  return token_of(model, "eos_token_id");
}

}  // namespace regroup

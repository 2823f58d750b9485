#include "formats/vocabulary/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/base/json.h"

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
    if (const auto id = vocabulary.special_id(role)) {
      config[fmt::format("{}_token_id", role)] = *id;
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
  const auto id = vocabulary.special_id(role);
  return id ? vocabulary.tokens[*id] : "";
}

json added_tokens_of(const Vocabulary& vocabulary) {
  json added = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (special || type == TokenType::kUserDefined) {
      added.push_back(json_of({.id = static_cast<std::int64_t>(id),
                               .content = vocabulary.tokens[id],
                               .special = special,
                               .where = {}}));
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

// The token before a document and the token after it, as the file says; empty for none.
struct EdgeTokens {
  std::string first, last;
};

EdgeTokens edge_tokens_of(const Vocabulary& vocabulary) {
  EdgeTokens edges;
  const bool bert = vocabulary.model == "bert";
  if (vocabulary.add_bos.value_or(false)) {
    edges.first = text_of_role(vocabulary, bert && vocabulary.special_id("cls") ? "cls" : "bos");
  }
  if (vocabulary.add_eos.value_or(bert || vocabulary.model == "t5")) {
    edges.last = text_of_role(vocabulary, bert ? "sep" : "eos");
  }
  return edges;
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
      const auto found = std::ranges::find(vocabulary.tokens, token);
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

namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
constexpr const char* kRolesFile = "special_tokens_map.json";
constexpr const char* kAddedFile = "added_tokens.json";

std::string shown_beside(const fs::path& directory, const char* name) {
  return printable_path(directory / name);
}

[[noreturn]] void refuse_id(const std::string& id, const std::string& where) {
  throw_bad_input("{}: an added token has the id {}, a whole number is needed", where, id);
}

std::int64_t whole_id(const SortedJson& id, const std::string& where) {
  if (!id.is_number_integer()) {
    refuse_id(printable_json(id), where);
  }
  return id.get<std::int64_t>();
}

std::int64_t id_in_key(const std::string& digits, const std::string& where) {
  const bool whole = !digits.empty() && digits.size() <= 9 &&
                     digits.find_first_not_of("0123456789") == std::string::npos;
  if (!whole) {
    refuse_id(printable(digits, 60), where);
  }
  return std::stoll(digits);
}

void check_token(const SortedJson& token, std::string_view list, const std::string& where) {
  if (!token.is_object() || !member_of(token, "content").is_string()) {
    throw_bad_input("{}: {} contains an entry that is not a token", where, list);
  }
}

void put_decoder(const SortedJson& decoder, const std::string& where,
                 std::vector<StoredAddedToken>& tokens) {
  for (const auto& [id, token] : decoder.items()) {
    check_token(token, "added_tokens_decoder", where);
    const auto flag = [&json = token](const char* key) {
      return flag_in(json, key).value_or(false);
    };
    tokens.push_back({id_in_key(id, where), token_text(token, "content"), flag("special"),
                      flag("normalized"), flag("single_word"), flag("lstrip"), flag("rstrip"),
                      where});
  }
}

// The texts of all tokens that a file names as special: those with roles, and lists of others.
void put_special_names(const SortedJson& file, std::set<std::string>& names) {
  for (const auto& [key, value] : file.items()) {
    if (key.ends_with("_token")) {
      names.insert(token_text(file, key));
    } else if (key == "additional_special_tokens" || key == "extra_special_tokens") {
      for (const auto& [name, token] : value.items()) {
        names.insert(token_text({{"token", token}}, "token"));
      }
    }
  }
}

void put_undescribed(const SortedJson& added, const std::set<std::string>& special,
                     const std::string& where, std::vector<StoredAddedToken>& tokens) {
  std::map<std::string, std::int64_t> known;
  for (const StoredAddedToken& token : tokens) {
    known.emplace(token.content, token.id);
  }
  for (const auto& [text, id] : added.items()) {
    const std::int64_t number = whole_id(id, where);
    const auto [found, is_new] = known.emplace(text, number);
    if (found->second != number) {
      throw_bad_input("{}: the added token {} has the id {}, in {} it has {}", where,
                      printable(text, 60), number, kTokenizerConfigFile, found->second);
    }
    if (is_new) {
      StoredAddedToken token{.id = number, .content = text, .where = where};
      token.special = special.contains(text);
      token.normalized = !token.special;
      tokens.push_back(std::move(token));
    }
  }
}

}  // namespace

std::vector<StoredAddedToken> added_tokens_beside(const fs::path& directory) {
  const SortedJson config = read_json_if_there(directory, kTokenizerConfigFile);
  std::vector<StoredAddedToken> tokens;
  put_decoder(member_of(config, "added_tokens_decoder"),
              shown_beside(directory, kTokenizerConfigFile), tokens);
  std::set<std::string> special;
  put_special_names(config, special);
  put_special_names(read_json_if_there(directory, kRolesFile), special);
  put_undescribed(read_json_if_there(directory, kAddedFile), special,
                  shown_beside(directory, kAddedFile), tokens);
  return tokens;
}

nlohmann::json json_of(const StoredAddedToken& token) {
  nlohmann::json id = token.id;
  if (token.id >= 0) {
    id = static_cast<std::uint64_t>(token.id);  // as the parser has it
  }
  return {{"id", std::move(id)},
          {"content", token.content},
          {"special", token.special},
          {"normalized", token.normalized},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip}};
}

std::string named_token(const fs::path& directory, const std::string& role) {
  for (const char* name : {kTokenizerConfigFile, kRolesFile}) {
    std::string text = token_text(read_json_if_there(directory, name), role + "_token");
    if (!text.empty()) {
      return text;
    }
  }
  return "";
}

// Reads special and added tokens, which several files may define.

namespace {

constexpr std::array<std::string_view, 6> kRoles{"bos", "eos", "unk", "sep", "pad", "mask"};
constexpr std::uint64_t kMaxTemplateBytes = 4U << 20;

void put_listed(VocabularyBuilder& builder, const SortedJson& list, const std::string& where) {
  for (const SortedJson& token : list) {
    check_token(token, "added_tokens", where);
    builder.put_added(whole_id(member_of(token, "id"), where), token_text(token, "content"),
                      flag_in(token, "special").value_or(false), where);
  }
}

// Sets a flag if the config does.
void set_flag(std::optional<bool>& flag, const SortedJson& config, std::string_view key) {
  if (const auto stated = flag_in(config, key)) {
    flag = stated;
  }
}

// The tokens that a post-processor adds around a text. Overrides the flags in
// tokenizer_config.json.
void read_post_processor(Vocabulary& vocabulary, const VocabularyBuilder& builder,
                         const SortedJson& processor) {
  const std::string type = token_text(processor, "type");
  const SortedJson& single = member_of(processor, "single");
  if (type == "Sequence" && member_of(processor, "processors").is_array()) {
    for (const SortedJson& part : member_of(processor, "processors")) {
      if (token_text(part, "type") != "Sequence") {
        read_post_processor(vocabulary, builder, part);
      }
    }
  } else if (type == "TemplateProcessing" && single.is_array() && single.size() > 1) {
    const auto matches = [&](const SortedJson& part, const char* role) -> std::optional<bool> {
      const std::string text = token_text(member_of(part, "SpecialToken"), "id");
      const auto id = vocabulary.special_id(role);
      return text.empty() ? std::nullopt : std::optional(id && builder.find(text) == id);
    };
    const auto begins = matches(single.front(), "bos");
    const auto ends = matches(single.back(), "eos");
    vocabulary.add_bos = begins ? begins : vocabulary.add_bos;
    vocabulary.add_eos = ends ? ends : vocabulary.add_eos;
  }
}

}  // namespace

std::string chat_template_in(const fs::path& directory, const SortedJson& tokenizer_config,
                             std::vector<std::string>& notes) {
  const SortedJson& stated = member_of(tokenizer_config, "chat_template");
  const fs::path file = directory / "chat_template.jinja";
  if (stated.is_string()) {
    return stated.get<std::string>();
  }
  if (stated.is_array()) {
    std::string standard;
    for (const SortedJson& named : stated) {
      if (token_text(named, "name") == "default") {
        standard = token_text(named, "template");
      } else {
        notes.push_back(fmt::format("the chat template {} is left out, one is kept",
                                    printable(token_text(named, "name"), 60)));
      }
    }
    return standard;
  }
  if (!path_exists(file)) {
    return token_text(read_json_if_there(directory, "chat_template.json"), "chat_template");
  }
  if (leads_out(file)) {
    notes.emplace_back(
        "chat_template.jinja is left out: it is a link to outside the model's directory");
    return "";
  }
  return read_text(file, kMaxTemplateBytes);
}

void put_added_tokens(VocabularyBuilder& builder, const fs::path& directory,
                      const SortedJson& tokenizer) {
  if (member_of(tokenizer, "added_tokens").is_array()) {
    put_listed(builder, member_of(tokenizer, "added_tokens"),
               printable_path(directory / "tokenizer.json"));
  }
  for (StoredAddedToken& token : added_tokens_beside(directory)) {
    builder.put_added(token.id, std::move(token.content), token.special, token.where);
  }
}

void read_special_tokens(VocabularyBuilder& builder, const fs::path& directory,
                         const SortedJson& tokenizer) {
  Vocabulary& vocabulary = builder.vocabulary();
  const SortedJson tokenizer_config = read_json_if_there(directory, "tokenizer_config.json");
  const SortedJson config = read_json_if_there(directory, "config.json");
  const SortedJson generation = read_json_if_there(directory, "generation_config.json");
  for (const std::string_view view : kRoles) {
    const std::string role(view);
    const std::string named = named_token(directory, role);
    std::optional<std::uint32_t> id = named.empty() ? std::nullopt : builder.find(named);
    // A token of the vocabulary with a role is never part of text, even if nothing says so.
    if (id && builder.type(*id) == TokenType::kNormal) {
      builder.set_type(*id, TokenType::kControl);
    }
    for (const SortedJson* file : {&config, &generation}) {
      const auto stated = first_number_in(*file, role + "_token_id");
      const bool fits = stated && *stated >= 0 && *stated < std::ssize(vocabulary.tokens);
      id = !id && fits ? std::optional(static_cast<std::uint32_t>(*stated)) : id;
    }
    if (id) {
      vocabulary.special_ids.emplace(role, *id);
    }
  }
  set_flag(vocabulary.add_bos, tokenizer_config, "add_bos_token");
  set_flag(vocabulary.add_eos, tokenizer_config, "add_eos_token");
  if (vocabulary.model == "llama") {  // byte-level loaders never add one
    set_flag(vocabulary.add_space_prefix, tokenizer_config, "add_prefix_space");
  }
  read_post_processor(vocabulary, builder, member_of(tokenizer, "post_processor"));
  vocabulary.chat_template = chat_template_in(directory, tokenizer_config, vocabulary.notes);
}

}  // namespace regroup

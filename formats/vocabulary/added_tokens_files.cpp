#include <array>
#include <map>
#include <set>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kRolesFile = "special_tokens_map.json";
constexpr const char* kAddedFile = "added_tokens.json";

std::string shown_beside(const fs::path& directory, const char* name) {
  return printable((directory / name).string(), 0);
}

[[noreturn]] void refuse_id(const std::string& id, const std::string& where) {
  throw_bad_input("{}: an added token has the id {}, a whole number is needed", where, id);
}

std::int64_t id_in_key(const std::string& digits, const std::string& where) {
  const bool whole = !digits.empty() && digits.size() <= 9 &&
                     digits.find_first_not_of("0123456789") == std::string::npos;
  if (!whole) {
    refuse_id(printable(digits, 60), where);
  }
  return std::stoll(digits);
}

bool flag_of(const SortedJson& token, const char* key) {
  const SortedJson& flag = member_of(token, key);
  return flag.is_boolean() && flag.get<bool>();
}

void put_decoder(const SortedJson& decoder, const std::string& where,
                 std::vector<StoredAddedToken>& tokens) {
  for (const auto& [id, token] : decoder.items()) {
    if (!token.is_object() || !member_of(token, "content").is_string()) {
      throw_bad_input("{}: added_tokens_decoder contains an entry that is not a token", where);
    }
    tokens.push_back({id_in_key(id, where), token_text(token, "content"), flag_of(token, "special"),
                      flag_of(token, "normalized"), flag_of(token, "single_word"),
                      flag_of(token, "lstrip"), flag_of(token, "rstrip"), where});
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
    if (!id.is_number_integer()) {
      refuse_id(printable_json(id), where);
    }
    const auto number = id.get<std::int64_t>();
    const auto [found, is_new] = known.emplace(text, number);
    if (found->second != number) {
      throw_bad_input("{}: the added token {} has the id {}, in {} it has {}", where,
                      printable(text, 60), number, kConfigFile, found->second);
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
  const SortedJson config = read_json_if_there(directory, kConfigFile);
  std::vector<StoredAddedToken> tokens;
  put_decoder(member_of(config, "added_tokens_decoder"), shown_beside(directory, kConfigFile),
              tokens);
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
  for (const char* name : {kConfigFile, kRolesFile}) {
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

std::int64_t id_of(const SortedJson& id, const std::string& where) {
  if (!id.is_number_integer()) {
    throw_bad_input("{}: an added token has the id {}, a whole number is needed", where,
                    printable_json(id));
  }
  return id.get<std::int64_t>();
}

void put_listed(VocabularyBuilder& builder, const SortedJson& list, const std::string& where) {
  for (const SortedJson& token : list) {
    if (!token.is_object() || !member_of(token, "content").is_string()) {
      throw_bad_input("{}: added_tokens contains an entry that is not a token", where);
    }
    const SortedJson& special = member_of(token, "special");
    builder.put_added(id_of(member_of(token, "id"), where), token_text(token, "content"),
                      special.is_boolean() && special.get<bool>(), where);
  }
}

// The id in a config; the first if there are several ("eos_token_id": [2, 7]).
std::optional<std::uint32_t> id_in(const SortedJson& config, const std::string& key,
                                   std::size_t tokens) {
  const SortedJson& member = member_of(config, key);
  const SortedJson& id = member.is_array() && !member.empty() ? member.front() : member;
  const bool fits = id.is_number_unsigned() && id.get<std::uint64_t>() < tokens;
  return fits ? std::optional(id.get<std::uint32_t>()) : std::nullopt;
}

void set_flag(std::optional<bool>& flag, const SortedJson& value) {
  if (value.is_boolean()) {
    flag = value.get<bool>();
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
      const auto id = vocabulary.special_ids.find(role);
      return text.empty() ? std::nullopt
                          : std::optional(id != vocabulary.special_ids.end() &&
                                          builder.find(text) == id->second);
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
               printable((directory / "tokenizer.json").string(), 0));
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
      id = id ? id : id_in(*file, role + "_token_id", vocabulary.tokens.size());
    }
    if (id) {
      vocabulary.special_ids.emplace(role, *id);
    }
  }
  set_flag(vocabulary.add_bos, member_of(tokenizer_config, "add_bos_token"));
  set_flag(vocabulary.add_eos, member_of(tokenizer_config, "add_eos_token"));
  if (vocabulary.model == "llama") {  // byte-level loaders never add one
    set_flag(vocabulary.add_space_prefix, member_of(tokenizer_config, "add_prefix_space"));
  }
  read_post_processor(vocabulary, builder, member_of(tokenizer, "post_processor"));
  vocabulary.chat_template = chat_template_in(directory, tokenizer_config, vocabulary.notes);
}

}  // namespace regroup

#include "formats/vocabulary/added_tokens_files.h"

#include <array>
#include <map>
#include <set>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/printable_json.h"
#include "formats/vocabulary/vocabulary_builder.h"

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

}  // namespace regroup

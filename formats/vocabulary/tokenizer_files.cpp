#include "formats/vocabulary/tokenizer_files.h"

#include <set>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"

namespace regroup {

SortedJson read_json_if_there(const std::filesystem::path& directory, const std::string& name,
                              std::uint64_t max_bytes) {
  const std::filesystem::path file = directory / name;
  return path_exists(file)
             ? parse_sorted_json_object(read_text(file, max_bytes), printable_path(file))
             : SortedJson();
}

std::optional<bool> flag_in(const SortedJson& object, std::string_view key) {
  const SortedJson& member = member_of(object, key);
  return member.is_boolean() ? std::optional(member.get<bool>()) : std::nullopt;
}

std::optional<std::int64_t> first_number_in(const SortedJson& object, std::string_view key) {
  const SortedJson& member = member_of(object, key);
  const SortedJson& number = member.is_array() && !member.empty() ? member.front() : member;
  return number.is_number_integer() ? std::optional(number.get<std::int64_t>()) : std::nullopt;
}

std::string token_text(const SortedJson& object, std::string_view key) {
  const SortedJson& member = member_of(object, key);
  const SortedJson& text = member.is_object() ? member_of(member, "content") : member;
  return text.is_string() ? text.get<std::string>() : "";
}

std::string with_plain_spaces(std::string text) {
  replace_all(text, kSpaceOfPieces, " ");
  return text;
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
constexpr const char* kRolesFile = "special_tokens_map.json";
constexpr const char* kAddedFile = "added_tokens.json";

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
  if (digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    refuse_id(printable(digits, 60), where);
  }
  return std::stoll(digits);
}

void check_token(const SortedJson& token, std::string_view list, const std::string& where) {
  if (!token.is_object() || !member_of(token, "content").is_string()) {
    throw_bad_input("{}: {} contains an entry that is not a token", where, list);
  }
}

// The other members of a token's description.
AddedToken described_token(std::int64_t id, const SortedJson& token, const std::string& where) {
  const auto flag = [&](const char* key) { return flag_in(token, key).value_or(false); };
  return {id,
          token_text(token, "content"),
          flag("special"),
          flag("normalized"),
          flag("single_word"),
          flag("lstrip"),
          flag("rstrip"),
          where};
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
                     const std::string& where, std::vector<AddedToken>& tokens) {
  std::map<std::string, std::int64_t> known;
  for (const AddedToken& token : tokens) {
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
      AddedToken token{.id = number, .content = text, .where = where};
      token.special = special.contains(text);
      token.normalized = !token.special;
      tokens.push_back(std::move(token));
    }
  }
}

constexpr auto kTemplateLeftOut = "the chat template {} is left out, one is kept";

// The names of the templates that transformers writes next to chat_template.jinja.
std::set<std::string> further_templates(const fs::path& directory) {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& entry : entries_in(directory / "additional_chat_templates", none)) {
    if (entry.path().extension() == ".jinja") {
      names.insert(entry.path().stem().string());
    }
  }
  return names;
}

}  // namespace

std::vector<AddedToken> added_tokens_beside(const fs::path& directory) {
  const SortedJson config = read_json_if_there(directory, kTokenizerConfigFile);
  const std::string where = printable_path(directory / kTokenizerConfigFile);
  std::vector<AddedToken> tokens;
  for (const auto& [id, token] : member_of(config, "added_tokens_decoder").items()) {
    check_token(token, "added_tokens_decoder", where);
    tokens.push_back(described_token(id_in_key(id, where), token, where));
  }
  std::set<std::string> special;
  put_special_names(config, special);
  put_special_names(read_json_if_there(directory, kRolesFile), special);
  put_undescribed(read_json_if_there(directory, kAddedFile), special,
                  printable_path(directory / kAddedFile), tokens);
  return tokens;
}

AddedToken listed_token(const SortedJson& token, const std::string& where) {
  check_token(token, "added_tokens", where);
  return described_token(whole_id(member_of(token, "id"), where), token, where);
}

nlohmann::json json_of(const AddedToken& token) {
  const auto unsigned_id = static_cast<std::uint64_t>(token.id);  // as the parser has it
  return {{"id", token.id < 0 ? nlohmann::json(token.id) : nlohmann::json(unsigned_id)},
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

std::string chat_template_in(const fs::path& directory, const SortedJson& tokenizer_config,
                             std::vector<std::string>& notes) {
  const SortedJson& stated = member_of(tokenizer_config, "chat_template");
  constexpr std::uint64_t kMaxTemplateBytes = 4U << 20;
  const fs::path file = directory / "chat_template.jinja";
  for (const std::string& name : further_templates(directory)) {
    notes.push_back(fmt::format(kTemplateLeftOut, printable(name, 60)));
  }
  if (path_exists(file)) {  // comes before the config, as in transformers 5
    if (!leads_out(file)) {
      return read_text(file, kMaxTemplateBytes);
    }
    notes.emplace_back(
        "chat_template.jinja is left out: it is a link to outside the model's directory");
  }
  if (stated.is_string()) {
    return stated.get<std::string>();
  }
  if (stated.is_array()) {
    std::string standard;
    for (const SortedJson& named : stated) {
      if (token_text(named, "name") == "default") {
        standard = token_text(named, "template");
      } else {
        notes.push_back(fmt::format(kTemplateLeftOut, printable(token_text(named, "name"), 60)));
      }
    }
    return standard;
  }
  return token_text(read_json_if_there(directory, "chat_template.json"), "chat_template");
}

}  // namespace regroup

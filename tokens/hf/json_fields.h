// Reads the objects of tokenizer.json, and refuses what it does not know.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace regroup {

/// One object, such as a normalizer. All getters throw kBadInput "<file>: <path>.<key> is <found>,
/// <needed> is needed".
class JsonFields {
 public:
  /// `where` names the file, `path` the object in it. Throws kBadInput unless `object` is one.
  JsonFields(const nlohmann::json& object, std::string where, std::string path);

  /// Throws kBadInput for a key that is not listed, except if its value is null.
  void allow(std::initializer_list<std::string_view> keys) const;

  /// The member, or null.
  const nlohmann::json& at(std::string_view key) const;
  /// The member, which is an object.
  JsonFields object(std::string_view key) const;
  /// The members of a list, each with the path that names it.
  std::vector<JsonFields> objects(std::string_view key) const;

  std::string text(std::string_view key) const;
  /// A text of at most 256 bytes, for what is put into texts.
  std::string short_text(std::string_view key) const;
  /// Nothing if the member is missing or null.
  std::optional<std::string> optional_text(std::string_view key) const;
  bool flag(std::string_view key, std::optional<bool> default_value = std::nullopt) const;
  /// From 0 to 2^31 - 1.
  std::uint32_t count(std::string_view key) const;

  [[noreturn]] void refuse(std::string_view key, std::string_view needed) const;
  /// Throws kBadInput "<file>: <path>: <why>".
  [[noreturn]] void refuse_all(std::string_view why) const;
  std::string name_of(std::string_view key) const;
  const nlohmann::json& json() const { return *object_; }
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json* object_;
  std::string where_, path_;
};

}  // namespace regroup

#include "tokens/hf/json_fields.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// Lists and objects may be as large as a vocabulary, and are not shown.
std::string shown(const nlohmann::json& value) {
  if (value.is_null()) {
    return "missing";
  }
  return value.is_array() ? "a list" : value.is_object() ? "an object" : printable_json(value);
}

}  // namespace

JsonFields::JsonFields(const nlohmann::json& object, std::string where, std::string path)
    : object_(&object), where_(std::move(where)), path_(std::move(path)) {
  if (!object.is_object()) {
    throw_bad_input("{}: {} is {}, an object is needed", where_, path_, shown(object));
  }
}

std::string JsonFields::name_of(std::string_view key) const {
  return path_.empty() ? printable(key, 60) : fmt::format("{}.{}", path_, printable(key, 60));
}

void JsonFields::refuse(std::string_view key, std::string_view needed) const {
  throw_bad_input("{}: {} is {}, {} is needed", where_, name_of(key), shown(at(key)), needed);
}

void JsonFields::refuse_all(std::string_view why) const {
  throw_bad_input("{}: {}: {}", where_, path_.empty() ? "the tokenizer" : path_, why);
}

void JsonFields::allow(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : object_->items()) {
    if (!value.is_null() && std::ranges::find(keys, key) == keys.end()) {
      throw_bad_input("{}: {} is not supported", where_, name_of(key));
    }
  }
}

const nlohmann::json& JsonFields::at(std::string_view key) const {
  return member_of(*object_, key);
}

JsonFields JsonFields::object(std::string_view key) const {
  return {at(key), where_, name_of(key)};
}

std::vector<JsonFields> JsonFields::objects(std::string_view key) const {
  const nlohmann::json& list = at(key);
  if (!list.is_array()) {
    refuse(key, "a list");
  }
  std::vector<JsonFields> objects;
  objects.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    objects.emplace_back(list[i], where_, fmt::format("{}[{}]", name_of(key), i));
  }
  return objects;
}

std::string JsonFields::text(std::string_view key) const {
  if (!at(key).is_string()) {
    refuse(key, "a string");
  }
  return at(key).get<std::string>();
}

std::string JsonFields::short_text(std::string_view key) const {
  constexpr std::size_t kMost = 256;
  std::string found = text(key);
  if (found.size() > kMost) {
    refuse(key, "a text of at most 256 bytes");
  }
  return found;
}

std::optional<std::string> JsonFields::optional_text(std::string_view key) const {
  return at(key).is_null() ? std::nullopt : std::optional(text(key));
}

bool JsonFields::flag(std::string_view key, std::optional<bool> default_value) const {
  const nlohmann::json& found = at(key);
  if (found.is_null() && default_value) {
    return *default_value;
  }
  if (!found.is_boolean()) {
    refuse(key, "true or false");
  }
  return found.get<bool>();
}

std::uint32_t JsonFields::count(std::string_view key) const {
  constexpr std::uint64_t kMost = 0x7fffffff;
  const nlohmann::json& found = at(key);
  if (!found.is_number_unsigned() || found.get<std::uint64_t>() > kMost) {
    refuse(key, "a whole number below 2^31");
  }
  return found.get<std::uint32_t>();
}

}  // namespace regroup

#include "formats/config/config_reader.h"

#include <limits>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/printable_json.h"

namespace regroup {
namespace {

bool is_count(const Json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned()
               ? value.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()
               : value.get<std::int64_t>() < 0) &&
         value.get<std::int64_t>() > 0;
}

}  // namespace

const Json* ConfigReader::find(std::string_view key) const {
  const auto found = config_.find(key);
  return found == config_.end() || found->is_null() ? nullptr : &*found;
}

const Json* ConfigReader::find_first(Keys keys, std::string& key) const {
  for (const std::string_view candidate : keys) {
    if (const Json* found = find(candidate)) {
      key = candidate;
      return found;
    }
  }
  key = *keys.begin();
  return nullptr;
}

std::optional<std::int64_t> ConfigReader::optional_count(Keys keys) const {
  std::string key;
  const Json* found = find_first(keys, key);
  if (found == nullptr) {
    return std::nullopt;
  }
  if (!is_count(*found)) {
    throw_bad_input("{}: {} is {}, a positive whole number is needed", where_, key,
                    printable_json(*found));
  }
  return found->get<std::int64_t>();
}

std::optional<std::int64_t> ConfigReader::optional_token(std::string_view key,
                                                         std::int64_t vocab_size) const {
  const Json* found = find(key);
  if (found == nullptr) {
    return std::nullopt;
  }
  const bool zero = found->is_number_integer() && *found == 0;
  if ((!zero && !is_count(*found)) || found->get<std::int64_t>() >= vocab_size) {
    throw_bad_input("{}: {} is {}, a token from 0 to {} is needed", where_, key,
                    printable_json(*found), vocab_size - 1);
  }
  return found->get<std::int64_t>();
}

std::int64_t ConfigReader::count(Keys keys) const {
  const auto found = optional_count(keys);
  if (!found) {
    throw_bad_input("{}: {} is missing", where_, *keys.begin());
  }
  return *found;
}

double ConfigReader::number_or(Keys keys, double absent) const {
  std::string key;
  const Json* found = find_first(keys, key);
  if (found != nullptr && !found->is_number()) {
    throw_bad_input("{}: {} is {}, a number is needed", where_, key, printable_json(*found));
  }
  return found == nullptr ? absent : found->get<double>();
}

bool ConfigReader::flag_or(Keys keys, bool absent) const {
  std::string key;
  const Json* found = find_first(keys, key);
  if (found != nullptr && !found->is_boolean()) {
    throw_bad_input("{}: {} is {}, true or false is needed", where_, key, printable_json(*found));
  }
  return found == nullptr ? absent : found->get<bool>();
}

std::string ConfigReader::text_or(Keys keys, std::string absent) const {
  std::string key;
  const Json* found = find_first(keys, key);
  if (found != nullptr && !found->is_string()) {
    throw_bad_input("{}: {} is {}, a string is needed", where_, key, printable_json(*found));
  }
  return found == nullptr ? absent : found->get<std::string>();
}

std::vector<std::int64_t> ConfigReader::kv_heads(std::string_view key, std::int64_t layers,
                                                 std::int64_t query_heads,
                                                 std::int64_t absent) const {
  const Json* found = find(key);
  std::vector<std::int64_t> heads(static_cast<std::size_t>(layers), absent);
  if (found != nullptr && found->is_array()) {
    if (found->size() != heads.size()) {
      throw_bad_input("{}: {} lists {} layers, the model has {}", where_, key, found->size(),
                      layers);
    }
    for (std::size_t i = 0; i < heads.size(); ++i) {
      heads[i] = is_count((*found)[i]) ? (*found)[i].get<std::int64_t>() : 0;
    }
  } else if (found != nullptr) {
    heads.assign(heads.size(), is_count(*found) ? found->get<std::int64_t>() : 0);
  }
  for (const std::int64_t count : heads) {
    if (count == 0 || query_heads % count != 0) {
      throw_bad_input("{}: {} is {}, divisors of the {} query heads are needed", where_, key,
                      found == nullptr ? std::to_string(count) : printable_json(*found),
                      query_heads);
    }
  }
  return heads;
}

ConfigReader ConfigReader::object(std::string_view key) const {
  static const Json kEmpty = Json::object();
  const Json* found = find(key);
  if (found != nullptr && !found->is_object()) {
    throw_bad_input("{}: {} is {}, an object is needed", where_, key, printable_json(*found));
  }
  return {found == nullptr ? kEmpty : *found, where_};
}

}  // namespace regroup

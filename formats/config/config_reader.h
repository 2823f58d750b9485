// Typed access to a config.json. Errors name the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json/json.h"

namespace regroup {

/// All getters throw kBadInput: "<file>: <key> is <found>, <allowed> is needed". A null counts as
/// absent. If several keys are given (old and new spellings), the first one present is used.
class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string_view where) : config_(config), where_(where) {}

  using Keys = std::initializer_list<std::string_view>;

  /// An integer from 1 to 2^31 - 1.
  std::int64_t count(Keys keys) const;
  std::optional<std::int64_t> optional_count(Keys keys) const;
  /// A token id: an integer below `vocab_size`.
  std::optional<std::int64_t> optional_token(std::string_view key, std::int64_t vocab_size) const;
  double number_or(Keys keys, double absent) const;
  bool flag_or(Keys keys, bool absent) const;
  std::string text_or(Keys keys, std::string absent) const;

  /// Kv heads per layer, from a number or a list with one entry per layer. `absent` if the key is
  /// absent.
  std::vector<std::int64_t> kv_heads(std::string_view key, std::int64_t layers,
                                     std::int64_t query_heads, std::int64_t absent) const;

  /// The nested object at `key`, or an empty one if absent.
  ConfigReader object(std::string_view key) const;
  /// The value at `key`, or nullptr if it is absent or a JSON null.
  const Json* find(std::string_view key) const;
  bool empty() const { return config_.empty(); }
  const Json& json() const { return config_; }
  /// Whether `key` is present, even with a null value.
  bool mentions(std::string_view key) const { return config_.contains(key); }
  const std::string& where() const { return where_; }

 private:
  const Json* find_first(Keys keys, std::string& key) const;

  const Json& config_;
  std::string where_;
};

}  // namespace regroup

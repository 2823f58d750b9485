// The values of a layout file, each read as the kind it must be; faults are gathered, so that all
// are told at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/json/json.h"

namespace regroup {

/// What stands for a layer's number in the name of a tensor.
inline constexpr std::string_view kLayerPlaceholder = "{layer}";

/// The value at `path` in nested objects; null where there is none, or a JSON null.
const Json* find_path(const Json& config, const std::vector<std::string>& path);

class LayoutValues {
 public:
  /// Both must outlive this. A fault is recorded for each key of `layout` that layouts do not have.
  LayoutValues(const Json& config, const Json& layout);

  const Json* find(std::string_view key) const { return find_path(layout_, {std::string(key)}); }

  /// A number from 1 to `most`, or the one under the config key that a string names; 0 after a
  /// fault.
  std::int64_t size(std::string_view key, std::int64_t most);

  /// `value` as a number from 1 to `most`; nothing after a fault.
  std::optional<std::int64_t> as_size(std::string_view key, const Json& value, std::int64_t most);

  /// A string; `absent` where there is none, or after a fault.
  std::string text(std::string_view key, const std::string& absent);

  /// True or false; false where there is none, or after a fault.
  bool flag(std::string_view key);

  /// The name of a tensor in every layer, with its placeholder; empty where there is none.
  std::string name_pattern(std::string_view key);

  /// The path that the dotted config key `dotted`, a value of `key`, comes to; nothing after a
  /// fault. Such a key may be written into the result's config, which must be readable again.
  std::vector<std::string> config_key(std::string_view key, std::string_view dotted);

  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  const Json& config_;
  const Json& layout_;
  std::vector<std::string> faults_;
};

}  // namespace regroup

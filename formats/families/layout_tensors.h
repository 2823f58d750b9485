// Values of a layout file, and the tensors that it names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// Typed access to the values of a layout file. Errors are collected, so that all are reported at
// once.

/// The placeholder for the layer number in tensor names.
inline constexpr std::string_view kLayerPlaceholder = "{layer}";

/// The value at `path` in nested objects; nullptr if absent or a JSON null.
const Json* find_path(const Json& config, const std::vector<std::string>& path);

class LayoutValues {
 public:
  /// Both must outlive this. Records an error for each unknown key in `layout`.
  LayoutValues(const Json& config, const Json& layout);

  const Json* find(std::string_view key) const { return find_path(layout_, {std::string(key)}); }

  /// A number from 1 to `most`. A string names the config key that holds it. 0 after an error.
  std::int64_t size(std::string_view key, std::int64_t most);

  /// `value` as a number from 1 to `most`; nothing after an error.
  std::optional<std::int64_t> as_size(std::string_view key, const Json& value, std::int64_t most);

  /// A string; `absent` if there is none or after an error.
  std::string text(std::string_view key, const std::string& absent);

  /// A boolean; false if there is none or after an error.
  bool flag(std::string_view key);

  /// A tensor name with the layer placeholder; empty if there is none.
  std::string name_pattern(std::string_view key);

  /// Splits the dotted config key `dotted`, a value of `key`, into a path; empty after an error.
  /// The key may be written into the result's config, which must be readable again.
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

// The tensors of an attention, by role.

/// Roles are named as in layout files: "q", "q_bias", "qkv", "k_norm". Absent tensors are omitted.
std::vector<std::pair<std::string_view, std::string>> tensors_by_role(
    const AttentionLayout& attention);

/// A sentence about the first tensor that has two roles, or the same role in two layers; empty if
/// there is none.
std::string tensor_named_twice(const ModelSpec& spec);

/// Finds a tensor in `checkpoint` that would no longer fit after conversion: `target` has fewer kv
/// heads than `source`, the tensor's name shows that it belongs to the keys, it has one number per
/// key feature (such as norm weights), but neither spec names it. Null if there is none.
const TensorInfo* forgotten_tensor_of_keys(const ModelSpec& source, const ModelSpec& target,
                                           const Checkpoint& checkpoint);

}  // namespace regroup

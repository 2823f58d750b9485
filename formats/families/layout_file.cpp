#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/layout_tensors.h"
#include "formats/families/unknown_architecture.h"
#include "formats/spec/config_reader.h"
#include "formats/spec/tensor_names.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxLayoutBytes = 1U << 20;
constexpr std::int64_t kMaxLayoutHeads = 1 << 16;
constexpr std::int64_t kMaxSize = 1 << 24;

constexpr std::size_t kMaxKeyBytes = 255;
constexpr std::size_t kMaxKeyParts = 16;  // configs nested deeper than 64 are refused

constexpr std::array<std::string_view, 24> kKnownKeys{
    "comments", "layers",       "hidden_size", "query_heads", "head_dim",
    "kv_heads", "kv_heads_key", "packing",     "q",           "k",
    "v",        "qkv",          "o",           "q_bias",      "k_bias",
    "v_bias",   "qkv_bias",     "o_bias",      "alibi",       "q_norm",
    "k_norm",   "q_norm_bias",  "k_norm_bias", "input_major"};

// Splits "attn_config.kv_n_heads" into the parts of a path.
std::vector<std::string> path_of(std::string_view dotted) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= dotted.size();) {
    const std::size_t end = std::min(dotted.find('.', begin), dotted.size());
    parts.emplace_back(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The placeholder for the layer number in tensor names.
constexpr std::string_view kLayerPlaceholder = "{layer}";

// The value at `path` in nested objects; nullptr if absent or a JSON null.
const Json* find_path(const Json& config, const std::vector<std::string>& path) {
  const Json* at = &config;
  for (const std::string& part : path) {
    at = &member_of(*at, part);
  }
  return at->is_null() ? nullptr : at;
}

// Typed access to the values of a layout file. Errors are collected, so that all are reported at
// once.
class LayoutValues {
 public:
  // Both must outlive this. Records an error for each unknown key in `layout`.
  LayoutValues(const Json& config, const Json& layout) : config_(config), layout_(layout) {
    for (const auto& [key, value] : layout_.items()) {
      if (!contains(kKnownKeys, key)) {
        fault("unknown key {}", printable(key));
      }
    }
  }

  const Json* find(std::string_view key) const { return find_path(layout_, {std::string(key)}); }

  // A number from 1 to `most`. A string names the config key that holds it. 0 after an error.
  std::int64_t size(std::string_view key, std::int64_t most) {
    const Json* value = find(key);
    if (value == nullptr) {
      fault("{} is missing", key);
      return 0;
    }
    if (!value->is_string()) {
      return as_size(key, *value, most).value_or(0);
    }
    const auto path = config_key(key, value->get_ref<const std::string&>());
    if (path.empty()) {
      return 0;
    }
    const Json* in_config = find_path(config_, path);
    if (in_config == nullptr) {
      fault("{}: config.json has no {}", key, printable_json(*value));
      return 0;
    }
    return as_size(key, *in_config, most).value_or(0);
  }

  // `value` as a number from 1 to `most`; nothing after an error.
  std::optional<std::int64_t> as_size(std::string_view key, const Json& value, std::int64_t most) {
    const bool whole =
        value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() > 0);
    if (!whole || value.get<std::uint64_t>() == 0 ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
      fault("{} is {}, a whole number from 1 to {} is needed", key, printable_json(value), most);
      return std::nullopt;
    }
    return value.get<std::int64_t>();
  }

  // A string; `absent` if there is none or after an error.
  std::string text(std::string_view key, const std::string& absent) {
    const Json* value = find(key);
    if (value != nullptr && !value->is_string()) {
      fault("{} is {}, a string is needed", key, printable_json(*value));
      return absent;
    }
    return value == nullptr ? absent : value->get<std::string>();
  }

  // A boolean; false if there is none or after an error.
  bool flag(std::string_view key) {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean()) {
      fault("{} is {}, true or false is needed", key, printable_json(*value));
    }
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  // A tensor name with the layer placeholder; empty if there is none.
  std::string name_pattern(std::string_view key) {
    std::string pattern = text(key, "");
    if (!pattern.empty() && pattern.find(kLayerPlaceholder) == std::string::npos) {
      fault("{} does not hold {}", printable_json(pattern), kLayerPlaceholder);
    }
    return pattern;
  }

  // Splits the dotted config key `dotted`, a value of `key`, into a path; empty after an error. The
  // key may be written into the result's config, which must be readable again.
  std::vector<std::string> config_key(std::string_view key, std::string_view dotted) {
    std::vector<std::string> path;
    if (dotted.size() <= kMaxKeyBytes) {
      path = path_of(dotted);
    }
    const bool has_empty = contains(path, "");
    if (path.empty() || path.size() > kMaxKeyParts || has_empty) {
      fault(
          "{} names the config key {}, at most {} bytes and {} parts between dots are allowed, "
          "none "
          "of them empty",
          key, printable(dotted, 60), kMaxKeyBytes, kMaxKeyParts);
      path.clear();
    }
    return path;
  }

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

std::string with_layer(std::string pattern, std::int64_t layer) {
  const std::size_t at = pattern.find(kLayerPlaceholder);
  return at == std::string::npos
             ? pattern
             : pattern.replace(at, kLayerPlaceholder.size(), std::to_string(layer));
}

// Fills in the specification that a layout describes.
struct LayoutReader {
  const Json& config;
  const Checkpoint& checkpoint;
  LayoutValues values;

  ModelSpec read() {
    ModelSpec spec;
    spec.contradictions = check_quantisation(ModelConfig(config, "config.json", checkpoint));
    std::int64_t layers = values.size("layers", kMaxSize);
    const auto tensors = static_cast<std::int64_t>(checkpoint.tensors().size());
    if (layers > tensors) {
      values.fault("layers is {}, but the checkpoint has only {} tensors", layers, tensors);
      layers = 0;  // so that nothing is allocated for them
    }
    read_sizes(spec);
    read_kv_heads(spec, layers);
    read_alibi(spec);
    name_layers(spec, layers);
    return spec;
  }

  void read_sizes(ModelSpec& spec) {
    spec.hidden_size = values.size("hidden_size", kMaxSize);
    spec.query_heads = values.size("query_heads", kMaxLayoutHeads);
    if (values.find("head_dim") != nullptr) {
      spec.head_dim = values.size("head_dim", kMaxSize);
    } else if (spec.query_heads > 0 && spec.hidden_size % spec.query_heads == 0) {
      spec.head_dim = spec.hidden_size / spec.query_heads;
    } else if (spec.query_heads > 0) {
      values.fault("head_dim is missing, and hidden size {} is no multiple of {} heads",
                   spec.hidden_size, spec.query_heads);
    }
  }

  // Reads the key that a conversion writes. If it is absent, takes the layout's value; if that is
  // absent, too, the number of query heads.
  void read_kv_heads(ModelSpec& spec, std::int64_t layers) {
    const Json* said = values.find("kv_heads");
    const bool said_by_key = said != nullptr && said->is_string();
    spec.kv_heads_key = values.config_key(
        "kv_heads_key", values.text("kv_heads_key", said_by_key ? said->get<std::string>()
                                                                : "num_key_value_heads"));
    const std::vector<std::string> said_key =
        said_by_key ? values.config_key("kv_heads", said->get_ref<const std::string&>())
                    : std::vector<std::string>();
    if (spec.kv_heads_key.empty() || said_key.empty() == said_by_key) {
      return;
    }
    const Json* value = find_path(config, spec.kv_heads_key);
    spec.loaders_read_kv_heads = value != nullptr;
    if (value == nullptr) {
      value = said_by_key ? find_path(config, said_key) : said;
    }
    const Json query_heads = spec.query_heads;
    value = value == nullptr ? &query_heads : value;
    const auto count = static_cast<std::size_t>(layers);
    if (value->is_array() && value->size() != count) {
      values.fault("kv_heads lists {} layers, the model has {}", value->size(), layers);
      return;
    }
    for (std::size_t i = 0; i < count && spec.query_heads > 0; ++i) {
      const auto heads =
          values.as_size("kv_heads", value->is_array() ? (*value)[i] : *value, kMaxLayoutHeads);
      if (!heads || spec.query_heads % *heads != 0) {
        if (heads) {
          values.fault("kv_heads is {}, a divisor of the {} query heads is needed", *heads,
                       spec.query_heads);
        }
        return;
      }
      spec.kv_heads.push_back(*heads);
    }
  }

  void read_alibi(ModelSpec& spec) {
    const Json* alibi = values.find("alibi");
    if (alibi == nullptr) {
      return;
    }
    const Json* bias_max = find_path(*alibi, {"bias_max"});
    if (!alibi->is_object() || alibi->size() > (bias_max == nullptr ? 0U : 1U) ||
        (bias_max != nullptr && !bias_max->is_number())) {
      values.fault("alibi is {}, an object with at most the number bias_max is needed",
                   printable_json(*alibi));
      return;
    }
    spec.positions = PositionKind::kAlibi;
    spec.alibi.bias_max = bias_max == nullptr ? spec.alibi.bias_max : bias_max->get<double>();
  }

  // Returns the names, which still contain placeholders.
  LinearTensors linear(std::string_view name, bool input_major) {
    const std::string bias_key = std::string(name) + "_bias";
    LinearTensors found{values.name_pattern(name), values.name_pattern(bias_key), input_major};
    if (!found.present()) {
      values.fault("{} is missing", name);
    }
    return found;
  }

  // Returns the norms of queries or keys that the layout names, with placeholders.
  std::vector<NormTensors> norms(std::string_view name) {
    const std::string bias_key = std::string(name) + "_bias";
    const NormTensors found{values.name_pattern(name), values.name_pattern(bias_key)};
    if (!found.present() && !found.bias.empty()) {
      values.fault("{} is present, but {} is missing", bias_key, name);
    }
    return found.present() ? std::vector{found} : std::vector<NormTensors>{};
  }

  void name_layers(ModelSpec& spec, std::int64_t layers) {
    const std::string packing = values.text("packing", "separate");
    const bool separate = packing == "separate";
    const std::size_t faults_before = values.faults().size();
    AttentionLayout pattern;
    if (packing == "query_key_value") {
      pattern.packing = Packing::kQueryKeyValue;
    } else if (packing == "per_group") {
      pattern.packing = Packing::kPerGroup;
    } else if (!separate) {
      values.fault("packing is {}; known: separate, query_key_value, per_group",
                   printable(packing));
    }
    const bool transposed = values.flag("input_major");
    pattern.q = linear(separate ? "q" : "qkv", transposed);
    pattern.k = separate ? linear("k", transposed) : pattern.q;
    pattern.v = separate ? linear("v", transposed) : pattern.q;
    pattern.o = linear("o", transposed);
    pattern.q_norms = norms("q_norm");
    pattern.k_norms = norms("k_norm");
    if (values.faults().size() > faults_before) {
      return;  // without their names, tensors cannot be found
    }
    for (std::int64_t i = 0; i < layers; ++i) {
      LayerTensors& layer = spec.layers.emplace_back();
      layer.attention = pattern;
      rename_tensors(layer, [&](const std::string& name) { return with_layer(name, i); });
    }
    if (const std::string twice = tensor_named_twice(spec); !twice.empty()) {
      values.fault("{}", twice);
    }
    for (const LayerTensors& layer : spec.layers) {
      for (const auto& [role, name] : tensors_by_role(layer.attention)) {
        if (checkpoint.find(name) == nullptr) {
          values.fault("the checkpoint has no tensor {}", printable(name));
        }
      }
    }
    tell_norms(spec);
  }

  // Weights of the size of one head apply to every head. Others belong to the whole projection.
  void tell_norms(ModelSpec& spec) {
    if (spec.layers.empty() || spec.layers.front().attention.k_norms.empty()) {
      return;
    }
    const std::string& name = spec.layers.front().attention.k_norms.front().weight;
    const TensorInfo* norm = checkpoint.find(name);
    spec.qk_norm = norm != nullptr && norm->elements() == spec.head_dim ? QkNorm::kSharedAcrossHeads
                                                                        : QkNorm::kProjection;
  }
};

}  // namespace

ModelSpec describe_with_layout(const Json& config, const Checkpoint& checkpoint, const Json& layout,
                               std::string_view where) {
  constexpr std::size_t kShown = 8;
  LayoutReader reader{config, checkpoint, LayoutValues(config, layout)};
  ModelSpec spec = reader.read();
  const std::vector<std::string>& faults = reader.values.faults();
  if (!faults.empty()) {
    throw_bad_input("{}: {}", where, first_of(faults, kShown));
  }
  spec.family = "custom";
  spec.architecture = architecture_of(config);
  if (spec.architecture.empty()) {
    spec.architecture = "custom";
  }
  spec.not_computable = "known through a layout file only";
  if (spec.positions == PositionKind::kAlibi) {
    read_recorded_slopes(spec, config, "config.json");
  }
  return spec;
}

ModelSpec describe_model_or_layout(const Json& config, const Checkpoint& checkpoint,
                                   std::string_view where, const std::filesystem::path& layout) {
  if (layout.empty()) {
    return describe_model(config, checkpoint, where);
  }
  const std::string name = printable_path(layout);
  return describe_with_layout(config, checkpoint,
                              parse_json_object(read_text(layout, kMaxLayoutBytes), name), name);
}

}  // namespace regroup

#include "formats/families/layout_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/families/config_reader.h"
#include "formats/families/family.h"
#include "formats/families/layout_tensors.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxLayoutBytes = 1U << 20;
constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxSize = 1 << 24;
constexpr std::string_view kPlaceholder = "{layer}";
constexpr std::size_t kMaxKeyBytes = 255;
constexpr std::size_t kMaxKeyParts = 16;  // a config nested deeper than 64 is not read

constexpr std::array<std::string_view, 23> kKnownKeys{
    "layers",  "hidden_size", "query_heads", "head_dim",    "kv_heads",   "kv_heads_key",
    "packing", "q",           "k",           "v",           "qkv",        "o",
    "q_bias",  "k_bias",      "v_bias",      "qkv_bias",    "o_bias",     "alibi",
    "q_norm",  "k_norm",      "q_norm_bias", "k_norm_bias", "input_major"};

// "attn_config.kv_n_heads" as the parts of a path.
std::vector<std::string> path_of(std::string_view dotted) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= dotted.size();) {
    const std::size_t end = std::min(dotted.find('.', begin), dotted.size());
    parts.emplace_back(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

const Json* find_path(const Json& config, const std::vector<std::string>& path) {
  const Json* at = &config;
  for (const std::string& part : path) {
    const auto found = at->is_object() ? at->find(part) : at->end();
    if (!at->is_object() || found == at->end() || found->is_null()) {
      return nullptr;
    }
    at = &*found;
  }
  return at;
}

std::string shown(const Json& value) { return printable(value.dump(-1, ' ', true), 60); }

// Reads a layout and gathers its faults, so that all are told at once.
class LayoutReader {
 public:
  LayoutReader(const Json& config, const Checkpoint& checkpoint, const Json& layout)
      : config_(config), checkpoint_(checkpoint), layout_(layout) {}

  ModelSpec read();

  const std::vector<std::string>& faults() const { return faults_; }

 private:
  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const Json* find(std::string_view key) const { return find_path(layout_, {std::string(key)}); }

  void refuse_unknown_keys();
  std::int64_t size(std::string_view key, std::int64_t most);
  std::optional<std::int64_t> as_size(std::string_view key, const Json& value, std::int64_t most);
  std::string text(std::string_view key, const std::string& absent);
  std::vector<std::string> config_key(std::string_view key, std::string_view dotted);
  void read_sizes(ModelSpec& spec);
  void read_kv_heads(ModelSpec& spec, std::int64_t layers);
  void read_alibi(ModelSpec& spec);
  bool input_major();
  LinearTensors linear(std::string_view name, bool input_major);
  std::vector<NormTensors> norms(std::string_view name);
  void name_layers(ModelSpec& spec, std::int64_t layers);
  void name_layer(ModelSpec& spec, AttentionLayout pattern, std::int64_t layer);
  void check_name(const std::string& name);
  void tell_norms(ModelSpec& spec);

  const Json& config_;
  const Checkpoint& checkpoint_;
  const Json& layout_;
  std::vector<std::string> faults_;
};

void LayoutReader::refuse_unknown_keys() {
  for (const auto& [key, value] : layout_.items()) {
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), key) == kKnownKeys.end()) {
      fault("unknown key {}", printable(key));
    }
  }
}

std::optional<std::int64_t> LayoutReader::as_size(std::string_view key, const Json& value,
                                                  std::int64_t most) {
  const bool whole =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() > 0);
  if (!whole || value.get<std::uint64_t>() == 0 ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    fault("{} is {}, a whole number from 1 to {} is needed", key, shown(value), most);
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

// The path that a dotted config key comes to; nothing after a fault. Such a key may be written into
// the result's config, which must be one that can be read again.
std::vector<std::string> LayoutReader::config_key(std::string_view key, std::string_view dotted) {
  std::vector<std::string> path;
  if (dotted.size() <= kMaxKeyBytes) {
    path = path_of(dotted);
  }
  const bool has_empty = std::find(path.begin(), path.end(), "") != path.end();
  if (path.empty() || path.size() > kMaxKeyParts || has_empty) {
    fault(
        "{} names the config key {}, at most {} bytes and {} parts between dots are allowed, none "
        "of them empty",
        key, printable(dotted, 60), kMaxKeyBytes, kMaxKeyParts);
    path.clear();
  }
  return path;
}

// A number, or that under the config key which the layout names; 0 after a fault.
std::int64_t LayoutReader::size(std::string_view key, std::int64_t most) {
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
    fault("{}: config.json has no {}", key, shown(*value));
    return 0;
  }
  return as_size(key, *in_config, most).value_or(0);
}

std::string LayoutReader::text(std::string_view key, const std::string& absent) {
  const Json* value = find(key);
  if (value != nullptr && !value->is_string()) {
    fault("{} is {}, a string is needed", key, shown(*value));
    return absent;
  }
  return value == nullptr ? absent : value->get<std::string>();
}

void LayoutReader::read_sizes(ModelSpec& spec) {
  spec.hidden_size = size("hidden_size", kMaxSize);
  spec.query_heads = size("query_heads", kMaxHeads);
  if (find("head_dim") != nullptr) {
    spec.head_dim = size("head_dim", kMaxSize);
  } else if (spec.query_heads > 0 && spec.hidden_size % spec.query_heads == 0) {
    spec.head_dim = spec.hidden_size / spec.query_heads;
  } else if (spec.query_heads > 0) {
    fault("head_dim is missing, and hidden size {} is no multiple of {} heads", spec.hidden_size,
          spec.query_heads);
  }
}

// What stands under the key that a conversion writes; before there is one, what the layout says;
// else as many as query heads.
void LayoutReader::read_kv_heads(ModelSpec& spec, std::int64_t layers) {
  const Json* said = find("kv_heads");
  const bool said_by_key = said != nullptr && said->is_string();
  spec.kv_heads_key = config_key(
      "kv_heads_key",
      text("kv_heads_key", said_by_key ? said->get<std::string>() : "num_key_value_heads"));
  const std::vector<std::string> said_key =
      said_by_key ? config_key("kv_heads", said->get_ref<const std::string&>())
                  : std::vector<std::string>();
  if (spec.kv_heads_key.empty() || said_key.empty() == said_by_key) {
    return;
  }
  const Json* value = find_path(config_, spec.kv_heads_key);
  spec.loaders_read_kv_heads = value != nullptr;
  if (value == nullptr && said_by_key) {
    value = find_path(config_, said_key);
  } else if (value == nullptr) {
    value = said;
  }
  const Json query_heads = spec.query_heads;
  value = value == nullptr ? &query_heads : value;
  const auto count = static_cast<std::size_t>(layers);
  if (value->is_array() && value->size() != count) {
    fault("kv_heads lists {} layers, the model has {}", value->size(), layers);
    return;
  }
  for (std::size_t i = 0; i < count && spec.query_heads > 0; ++i) {
    const auto heads = as_size("kv_heads", value->is_array() ? (*value)[i] : *value, kMaxHeads);
    if (!heads || spec.query_heads % *heads != 0) {
      if (heads) {
        fault("kv_heads is {}, a divisor of the {} query heads is needed", *heads,
              spec.query_heads);
      }
      return;
    }
    spec.kv_heads.push_back(*heads);
  }
}

void LayoutReader::read_alibi(ModelSpec& spec) {
  const Json* alibi = find("alibi");
  if (alibi == nullptr) {
    return;
  }
  const Json* bias_max = find_path(*alibi, {"bias_max"});
  if (!alibi->is_object() || alibi->size() > (bias_max == nullptr ? 0U : 1U) ||
      (bias_max != nullptr && !bias_max->is_number())) {
    fault("alibi is {}, an object with at most the number bias_max is needed", shown(*alibi));
    return;
  }
  spec.positions = PositionKind::kAlibi;
  spec.alibi.bias_max = bias_max == nullptr ? spec.alibi.bias_max : bias_max->get<double>();
}

bool LayoutReader::input_major() {
  const Json* value = find("input_major");
  if (value != nullptr && !value->is_boolean()) {
    fault("input_major is {}, true or false is needed", shown(*value));
  }
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

// The names with their placeholders.
LinearTensors LayoutReader::linear(std::string_view name, bool input_major) {
  const std::string bias_key = std::string(name) + "_bias";
  LinearTensors found{text(name, ""), text(bias_key, ""), input_major};
  if (!found.present()) {
    fault("{} is missing", name);
  }
  for (const std::string& pattern : {found.weight, found.bias}) {
    if (!pattern.empty() && pattern.find(kPlaceholder) == std::string::npos) {
      fault("{} does not hold {}", shown(pattern), kPlaceholder);
    }
  }
  return found;
}

std::string with_layer(std::string pattern, std::int64_t layer) {
  const std::size_t at = pattern.find(kPlaceholder);
  return at == std::string::npos ? pattern
                                 : pattern.replace(at, kPlaceholder.size(), std::to_string(layer));
}

// Those of queries or keys with their placeholders, where the layout names any.
std::vector<NormTensors> LayoutReader::norms(std::string_view name) {
  const std::string bias_key = std::string(name) + "_bias";
  const NormTensors found{text(name, ""), text(bias_key, "")};
  for (const std::string& pattern : {found.weight, found.bias}) {
    if (!pattern.empty() && pattern.find(kPlaceholder) == std::string::npos) {
      fault("{} does not hold {}", shown(pattern), kPlaceholder);
    }
  }
  if (!found.present() && !found.bias.empty()) {
    fault("{} is there and {} is missing", bias_key, name);
  }
  return found.present() ? std::vector{found} : std::vector<NormTensors>{};
}

void LayoutReader::check_name(const std::string& name) {
  if (!name.empty() && checkpoint_.find(name) == nullptr) {
    fault("the checkpoint has no tensor {}", printable(name));
  }
}

void LayoutReader::name_layer(ModelSpec& spec, AttentionLayout pattern, std::int64_t layer) {
  const auto settle = [&](auto& part) {
    part.weight = with_layer(part.weight, layer);
    part.bias = with_layer(part.bias, layer);
  };
  for (LinearTensors* part : {&pattern.q, &pattern.k, &pattern.v, &pattern.o}) {
    settle(*part);
  }
  for (std::vector<NormTensors>* norms : {&pattern.q_norms, &pattern.k_norms}) {
    std::for_each(norms->begin(), norms->end(), settle);
  }
  for (const auto& [role, name] : tensors_by_role(pattern)) {
    check_name(name);
  }
  spec.layers.emplace_back().attention = std::move(pattern);
}

void LayoutReader::name_layers(ModelSpec& spec, std::int64_t layers) {
  const std::string packing = text("packing", "separate");
  const bool separate = packing == "separate";
  const std::size_t faults_before = faults_.size();
  AttentionLayout pattern;
  if (packing == "query_key_value") {
    pattern.packing = Packing::kQueryKeyValue;
  } else if (packing == "per_group") {
    pattern.packing = Packing::kPerGroup;
  } else if (!separate) {
    fault("packing is {}; known: separate, query_key_value, per_group", printable(packing));
  }
  const bool transposed = input_major();
  pattern.q = linear(separate ? "q" : "qkv", transposed);
  pattern.k = separate ? linear("k", transposed) : pattern.q;
  pattern.v = separate ? linear("v", transposed) : pattern.q;
  pattern.o = linear("o", transposed);
  pattern.q_norms = norms("q_norm");
  pattern.k_norms = norms("k_norm");
  if (faults_.size() > faults_before) {
    return;  // tensors cannot be looked for without their names
  }
  for (std::int64_t i = 0; i < layers; ++i) {
    name_layer(spec, pattern, i);
  }
  if (const std::string twice = tensor_named_twice(spec); !twice.empty()) {
    faults_.insert(faults_.begin(), twice);
  }
  tell_norms(spec);
}

// Weights for one head serve all of them; others belong to the whole projection.
void LayoutReader::tell_norms(ModelSpec& spec) {
  if (spec.layers.empty() || spec.layers.front().attention.k_norms.empty()) {
    return;
  }
  const std::string& name = spec.layers.front().attention.k_norms.front().weight;
  const TensorInfo* norm = checkpoint_.find(name);
  spec.qk_norm = norm != nullptr && norm->elements() == spec.head_dim ? QkNorm::kEveryHead
                                                                      : QkNorm::kProjection;
}

ModelSpec LayoutReader::read() {
  ModelSpec spec;
  refuse_unknown_keys();
  if (find_path(config_, {"quantization_config"}) != nullptr) {
    fault("config.json has a quantization_config; quantised weights cannot be pooled");
  }
  std::int64_t layers = size("layers", kMaxSize);
  const auto tensors = static_cast<std::int64_t>(checkpoint_.tensors().size());
  if (layers > tensors) {
    fault("layers is {}, but the checkpoint has only {} tensors", layers, tensors);
    layers = 0;  // nothing is made for so many
  }
  read_sizes(spec);
  read_kv_heads(spec, layers);
  read_alibi(spec);
  name_layers(spec, layers);
  return spec;
}

std::string architecture_in(const Json& config) {
  const Json* list = find_path(config, {"architectures"});
  return list != nullptr && list->is_array() && !list->empty() && list->front().is_string()
             ? list->front().get<std::string>()
             : "custom";
}

}  // namespace

ModelSpec describe_with_layout(const Json& config, const Checkpoint& checkpoint, const Json& layout,
                               std::string_view where) {
  constexpr std::size_t kShown = 8;
  LayoutReader reader(config, checkpoint, layout);
  ModelSpec spec = reader.read();
  const std::vector<std::string>& faults = reader.faults();
  if (!faults.empty()) {
    const auto first = std::span(faults).first(std::min(faults.size(), kShown));
    throw_bad_input(
        "{}: {}{}", where, fmt::join(first, "; "),
        faults.size() > kShown ? fmt::format("; and {} more", faults.size() - kShown) : "");
  }
  spec.family = "custom";
  spec.architecture = architecture_in(config);
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
  const std::string name = printable(layout.string(), 0);
  return describe_with_layout(config, checkpoint,
                              parse_json_object(read_text(layout, kMaxLayoutBytes), name), name);
}

}  // namespace regroup

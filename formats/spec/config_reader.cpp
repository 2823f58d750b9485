#include "formats/spec/config_reader.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/tensors/tensor_reader.h"

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

namespace {

constexpr std::int64_t kMaxHeads = 1 << 16;

}  // namespace

std::int64_t read_layer_count(const ConfigReader& config, ConfigReader::Keys keys,
                              const Checkpoint& checkpoint) {
  const std::int64_t layers = config.count(keys);
  const auto tensors = static_cast<std::int64_t>(checkpoint.tensors().size());
  const bool to_be_made = checkpoint.files().empty() && tensors == 0;  // no weights yet
  if (layers > tensors && !to_be_made) {
    throw_bad_input("{}: {} is {}, but the checkpoint has only {} tensors", config.where(),
                    *keys.begin(), layers, tensors);
  }
  return layers;
}

void set_heads(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys heads_keys,
               std::optional<std::int64_t> explicit_head_dim) {
  spec.query_heads = config.count(heads_keys);
  if (spec.query_heads > kMaxHeads) {
    throw_bad_input("{}: {} is {}, at most {} allowed", config.where(), *heads_keys.begin(),
                    spec.query_heads, kMaxHeads);
  }
  if (!explicit_head_dim && spec.hidden_size % spec.query_heads != 0) {
    throw_bad_input("{}: hidden size {} is no multiple of {} heads, and there is no head_dim",
                    config.where(), spec.hidden_size, spec.query_heads);
  }
  spec.head_dim = explicit_head_dim.value_or(spec.hidden_size / spec.query_heads);
}

void read_stack_sizes(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys layers_keys,
                      const Checkpoint& checkpoint) {
  const std::int64_t layers = read_layer_count(config, layers_keys, checkpoint);
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);
}

void skip_first_positions(ModelSpec& spec, const ConfigReader& config, std::int64_t rows) {
  spec.position_offset = rows;
  spec.max_positions = spec.max_positions.value() - rows;
  if (*spec.max_positions < 1) {
    throw_bad_input("{}: max_position_embeddings leaves no position after the first {} rows",
                    config.where(), rows);
  }
}

std::string find_prefix(const Checkpoint& checkpoint,
                        std::initializer_list<std::string_view> prefixes, std::string_view name) {
  for (const std::string_view prefix : prefixes) {
    if (checkpoint.find(std::string(prefix).append(name)) != nullptr) {
      return std::string(prefix);
    }
  }
  return std::string(*prefixes.begin());
}

void name_output(ModelSpec& spec, const ConfigReader& config, const std::string& name, bool tied) {
  (config.flag_or({"tie_word_embeddings"}, tied) ? spec.tied_head : spec.lm_head) = name;
}

void name_output_bias(ModelSpec& spec, const Checkpoint& checkpoint, const std::string& used,
                      const std::string& tied) {
  const TensorInfo* own = checkpoint.find(used);
  const TensorInfo* shared = checkpoint.find(tied);
  const bool is_tied = spec.lm_head.empty();
  spec.lm_head_bias = is_tied && own == nullptr ? tied : used;
  if (shared != nullptr && own == nullptr && !is_tied) {
    spec.lm_head_bias.clear();
    spec.contradictions.push_back(
        fmt::format("{} is not used: with tie_word_embeddings = false the bias is {}, which is "
                    "missing and counts "
                    "as zeros, as in transformers 5",
                    printable(tied), printable(used)));
  } else if (shared != nullptr && own != nullptr && is_tied &&
             !same_contents(checkpoint, *own, *shared)) {
    spec.contradictions.push_back(
        fmt::format("{} differs from {}, which is used, as in "
                    "transformers 5",
                    printable(tied), printable(used)));
  }
}

Activation activation_from_name(const std::string& name, const std::string& where) {
  if (name == "silu" || name == "swish") {
    return Activation::kSilu;
  }
  if (name == "gelu" || name == "gelu_python") {
    return Activation::kGeluErf;
  }
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") {
    return Activation::kRelu;
  }
  if (name == "relu2") {
    return Activation::kReluSquared;
  }
  throw_bad_input("{}: unknown activation {}; known: silu, gelu, gelu_new, relu, relu2", where,
                  printable(name));
}

LinearTensors linear_at(const std::string& name, bool bias) {
  return {name + ".weight", bias ? name + ".bias" : "", false};
}

NormTensors norm_at(const std::string& name, bool bias) {
  return {name + ".weight", bias ? name + ".bias" : ""};
}

std::optional<std::vector<bool>> listed_windows(const ConfigReader& config, std::size_t layers) {
  const Json* types = config.find("layer_types");
  if (types == nullptr) {
    return std::nullopt;
  }
  const auto known = [](const Json& type) {
    return type == "sliding_attention" || type == "full_attention";
  };
  if (!types->is_array() || types->size() != layers ||
      !std::all_of(types->begin(), types->end(), known)) {
    throw_bad_input(
        "{}: layer_types must list full_attention or sliding_attention for each of the {} layers",
        config.where(), layers);
  }
  std::vector<bool> slides;
  for (const Json& type : *types) {
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

void set_windows(ModelSpec& spec, const std::vector<bool>& slides, std::int64_t width) {
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) {
    return;
  }
  spec.sliding_window = width;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].without_window = !slides[i];
  }
}

void read_layer_windows(ModelSpec& spec, const ConfigReader& config, std::int64_t pattern) {
  constexpr std::int64_t kWidthUnlessGiven = 4096;
  std::vector<bool> slides(spec.layers.size());
  for (std::size_t i = 0; i < slides.size(); ++i) {
    slides[i] = (static_cast<std::int64_t>(i) + 1) % pattern != 0;
  }
  slides = listed_windows(config, slides.size()).value_or(slides);
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (any && config.mentions("sliding_window") && config.find("sliding_window") == nullptr) {
    throw_bad_input("{}: sliding_window is null, but layers slide: a number is needed",
                    config.where());
  }
  set_windows(spec, slides, config.optional_count({"sliding_window"}).value_or(kWidthUnlessGiven));
}

}  // namespace regroup

#include "formats/spec/config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/tensors/tensor_reader.h"

namespace regroup {
namespace {

constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kWidthUnlessGiven = 4096;  // of a sliding window

struct ActivationName {
  std::string_view name;
  Activation activation;
};

// The first name of each is the one that is written.
constexpr auto kActivations = std::to_array<ActivationName>({
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGeluErf},
    {"gelu_python", Activation::kGeluErf},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kReluSquared},
});

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

template <typename T>
std::optional<T> ConfigReader::typed(Keys keys, bool (Json::*has_type)() const,
                                     std::string_view needed) const {
  std::string key;
  const Json* found = find_first(keys, key);
  if (found != nullptr && !(found->*has_type)()) {
    throw_bad_input("{}: {} is {}, {} is needed", where_, key, printable_json(*found), needed);
  }
  return found == nullptr ? std::nullopt : std::optional(found->get<T>());
}

std::optional<double> ConfigReader::optional_number(Keys keys) const {
  return typed<double>(keys, &Json::is_number, "a number");
}

double ConfigReader::number_or(Keys keys, double absent) const {
  return optional_number(keys).value_or(absent);
}

bool ConfigReader::flag_or(Keys keys, bool absent) const {
  return typed<bool>(keys, &Json::is_boolean, "true or false").value_or(absent);
}

std::string ConfigReader::text_or(Keys keys, std::string absent) const {
  return typed<std::string>(keys, &Json::is_string, "a string").value_or(std::move(absent));
}

Activation ConfigReader::activation_or(Keys keys, const std::string& absent) const {
  const std::string name = text_or(keys, absent);
  const auto* known = std::ranges::find(kActivations, name, &ActivationName::name);
  if (known == kActivations.end()) {
    throw_bad_input("{}: unknown activation {}; known: silu, gelu, gelu_new, relu, relu2", where_,
                    printable(name));
  }
  return known->activation;
}

std::string_view config_name_of(Activation activation) {
  return std::ranges::find(kActivations, activation, &ActivationName::activation)->name;
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

void read_layers(std::vector<LayerTensors>& layers, const ModelConfig& config,
                 ConfigReader::Keys keys) {
  const std::int64_t count = config.count(keys);
  const std::int64_t tensors = std::ssize(config.checkpoint.tensors());
  if (count > tensors && !config.to_be_made()) {
    throw_bad_input("{}: {} is {}, but the checkpoint has only {} tensors", config.where(),
                    *keys.begin(), count, tensors);
  }
  layers.resize(static_cast<std::size_t>(count));
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

void read_stack_sizes(ModelSpec& spec, const ModelConfig& config, ConfigReader::Keys hidden_keys,
                      ConfigReader::Keys heads_keys, ConfigReader::Keys layers_keys,
                      std::optional<std::int64_t> head_dim) {
  spec.hidden_size = config.count(hidden_keys);
  set_heads(spec, config, heads_keys, head_dim);
  read_layers(spec.layers, config, layers_keys);
  spec.vocab_size = config.count({"vocab_size"});
  spec.kv_heads = config.kv_heads("num_key_value_heads", spec.layer_count(), spec.query_heads,
                                  spec.query_heads);
}

void read_layer_norm(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys keys,
                     double absent) {
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or(keys, absent);
}

void read_kv_heads_of_roles(ModelSpec& spec, const ConfigReader& config) {
  for (const AttentionRole role : spec.roles()) {
    spec.kv_heads_of(role) = config.kv_heads(spec.kv_heads_key_of(role).back(),
                                             static_cast<std::int64_t>(spec.stack(role).size()),
                                             spec.query_heads, spec.query_heads);
  }
}

void skip_first_positions(ModelSpec& spec, const ConfigReader& config, std::int64_t rows) {
  spec.position_offset = rows;
  spec.max_positions = spec.max_positions.value() - rows;
  if (*spec.max_positions < 1) {
    throw_bad_input("{}: max_position_embeddings leaves no position after the first {} rows",
                    config.where(), rows);
  }
}

std::string find_prefix(const ModelConfig& config, std::initializer_list<std::string_view> prefixes,
                        std::string_view name) {
  for (const std::string_view prefix : prefixes) {
    if (config.stores(std::string(prefix).append(name))) {
      return std::string(prefix);
    }
  }
  return std::string(*prefixes.begin());
}

void name_output(ModelSpec& spec, const ConfigReader& config, const std::string& name, bool tied) {
  (config.flag_or({"tie_word_embeddings"}, tied) ? spec.tied_head : spec.lm_head) = name;
}

void name_output_bias(ModelSpec& spec, const ModelConfig& config, const std::string& used,
                      const std::string& tied) {
  const TensorInfo* own = config.checkpoint.find(used);
  const TensorInfo* shared = config.checkpoint.find(tied);
  const bool is_tied = spec.lm_head.empty();
  spec.lm_head_bias = is_tied && own == nullptr ? tied : used;
  if (shared != nullptr && own == nullptr && !is_tied) {
    spec.lm_head_bias.clear();
    spec.contradictions.push_back(
        fmt::format("{} is not used: with tie_word_embeddings = false the bias is {}, which is "
                    "missing and counts as zeros, as in transformers 5",
                    printable(tied), printable(used)));
  } else if (shared != nullptr && own != nullptr && is_tied &&
             !same_contents(config.checkpoint, *own, *shared)) {
    spec.contradictions.push_back(
        fmt::format("{} differs from {}, which is used, as in transformers 5", printable(tied),
                    printable(used)));
  }
}

LinearTensors linear_at(const std::string& name, bool bias) {
  return {name + ".weight", bias ? name + ".bias" : "", false};
}

NormTensors norm_at(const std::string& name, bool bias) {
  return {name + ".weight", bias ? name + ".bias" : ""};
}

AttentionLayout attention_at(const std::string& block, const BlockNames& names,
                             const BlockBiases& biases) {
  const auto projection = [&](const char* part) {
    std::string name = block + std::string(names.attention.qkv);
    if (names.packing == Packing::kSeparate) {
      name.replace(name.rfind('*'), 1, part);
    }
    return linear_at(name, biases.qkv);
  };
  const LinearTensors o = linear_at(block + std::string(names.attention.o), biases.o);
  return {names.packing, projection("q"), projection("k"), projection("v"), o, {}, {}};
}

void name_blocks(std::vector<LayerTensors>& layers, const std::string& stack,
                 const BlockNames& names, const BlockBiases& biases) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string block = fmt::format("{}{}.", stack, i);
    const auto norm = [&](std::string_view name) {
      return name.empty() ? NormTensors() : norm_at(block + std::string(name), biases.norm);
    };
    const auto linear = [&](std::string_view name) {
      return name.empty() ? LinearTensors() : linear_at(block + std::string(name), biases.mlp);
    };
    layers[i].attention_norm = norm(names.attention.norm);
    layers[i].attention = attention_at(block, names, biases);
    layers[i].mlp_norm = norm(names.mlp.norm);
    layers[i].gate = linear(names.mlp.gate);
    layers[i].up = linear(names.mlp.up);
    layers[i].down = linear(names.mlp.down);
  }
}

std::string name_stack(ModelSpec& spec, const ModelConfig& config, const StackNames& names,
                       const BlockNames& block, const BlockBiases& biases) {
  const std::string embedding = std::string(names.embedding) + ".weight";
  const std::string prefix = find_prefix(config, {names.prefix, ""}, embedding);
  spec.token_embedding = prefix + embedding;
  name_blocks(spec.layers, prefix + std::string(names.blocks), block, biases);
  if (!names.final_norm.empty()) {
    spec.final_norm = norm_at(prefix + std::string(names.final_norm), biases.norm);
  }
  return prefix;
}

std::vector<bool> sliding_layers(const ConfigReader& config, std::size_t layers,
                                 const std::function<bool(std::size_t)>& usual) {
  const Json* types = config.find("layer_types");
  const auto known = [](const Json& type) {
    return type == "sliding_attention" || type == "full_attention";
  };
  if (types != nullptr &&
      (!types->is_array() || types->size() != layers || !std::ranges::all_of(*types, known))) {
    throw_bad_input(
        "{}: layer_types must list full_attention or sliding_attention for each of the {} layers",
        config.where(), layers);
  }
  std::vector<bool> slides;
  for (std::size_t i = 0; i < layers; ++i) {
    slides.push_back(types == nullptr ? usual(i) : (*types)[i] == "sliding_attention");
  }
  return slides;
}

void read_sliding_window(ModelSpec& spec, const ConfigReader& config) {
  spec.sliding_window = config.mentions("sliding_window")
                            ? config.optional_count({"sliding_window"})
                            : std::optional(kWidthUnlessGiven);
}

void set_windows(ModelSpec& spec, const std::vector<bool>& slides, std::int64_t width) {
  if (!contains(slides, true)) {
    return;
  }
  spec.sliding_window = width;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].without_window = !slides[i];
  }
}

void read_layer_windows(ModelSpec& spec, const ConfigReader& config, std::int64_t pattern) {
  const std::vector<bool> slides = sliding_layers(
      config, spec.layers.size(),
      [&](std::size_t layer) { return (static_cast<std::int64_t>(layer) + 1) % pattern != 0; });
  const bool any = contains(slides, true);
  if (any && config.mentions("sliding_window") && config.find("sliding_window") == nullptr) {
    throw_bad_input("{}: sliding_window is null, but layers slide: a number is needed",
                    config.where());
  }
  set_windows(spec, slides, config.optional_count({"sliding_window"}).value_or(kWidthUnlessGiven));
}

namespace {

// YaRN (Peng et al., https://arxiv.org/abs/2309.00071, section 3.4), as transformers computes it.
double yarn_attention_factor(const ConfigReader& given, double factor) {
  const auto scale_of = [&](double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
  };
  if (const auto explicit_factor = given.optional_number({"attention_factor"})) {
    return *explicit_factor;
  }
  const double mscale = given.number_or({"mscale"}, 0.0);
  const double all_dimensions = given.number_or({"mscale_all_dim"}, 0.0);
  return mscale != 0.0 && all_dimensions != 0.0 ? scale_of(mscale) / scale_of(all_dimensions)
                                                : scale_of(1.0);
}

// The divisors of the frequencies, one per rotating pair.
std::vector<double> pair_factors(const ConfigReader& given, std::string_view key,
                                 std::int64_t pairs) {
  const Json* found = given.find(key);
  const auto is_factor = [](const Json& factor) {
    return factor.is_number() && factor.get<double>() > 0.0;
  };
  if (found == nullptr || !found->is_array() || std::ssize(*found) != pairs ||
      !std::ranges::all_of(*found, is_factor)) {
    throw_bad_input("{}: {} must list {} positive numbers, one per rotating pair", given.where(),
                    key, pairs);
  }
  return found->get<std::vector<double>>();
}

// LongRoPE as transformers computes it.
RopeScaling read_longrope(const ConfigReader& given, double positions, double original,
                          std::int64_t pairs) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLongRope;
  scaling.original_positions = original;
  if (!(original > 1.0)) {
    throw_bad_input("{}: original_max_position_embeddings is {}, LongRoPE needs more than 1",
                    given.where(), original);
  }
  scaling.factor = given.number_or({"factor"}, positions / original);
  const double formula =
      scaling.factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(scaling.factor) / std::log(original));
  scaling.attention_factor = given.number_or({"attention_factor"}, formula);
  scaling.short_factors = pair_factors(given, "short_factor", pairs);
  scaling.long_factors = pair_factors(given, "long_factor", pairs);
  return scaling;
}

RopeScaling read_scaling(const ConfigReader& given, const std::string& type, double positions,
                         double original) {
  RopeScaling scaling;
  scaling.kind = type == "linear"    ? RopeScaling::Kind::kLinear
                 : type == "dynamic" ? RopeScaling::Kind::kDynamic
                 : type == "llama3"  ? RopeScaling::Kind::kLlama3
                                     : RopeScaling::Kind::kYarn;
  const bool stretches = scaling.kind == RopeScaling::Kind::kYarn;
  scaling.factor = given.number_or({"factor"}, stretches ? positions / original : 1.0);
  scaling.original_positions = scaling.kind == RopeScaling::Kind::kDynamic ? positions : original;
  scaling.low_frequency_factor = given.number_or({"low_freq_factor"}, 1.0);
  scaling.high_frequency_factor = given.number_or({"high_freq_factor"}, 4.0);
  const auto unless_zero = [&](const char* key, double usual) {  // as transformers
    const double stated = given.number_or({key}, usual);
    if (stated < 0.0) {
      throw_bad_input("{}: {} is {}, a positive number is needed", given.where(), key, stated);
    }
    return stated == 0.0 ? usual : stated;
  };
  scaling.beta_fast = unless_zero("beta_fast", 32.0);
  scaling.beta_slow = unless_zero("beta_slow", 1.0);
  scaling.truncate = given.flag_or({"truncate"}, true);
  if (scaling.kind == RopeScaling::Kind::kYarn) {
    scaling.attention_factor = yarn_attention_factor(given, scaling.factor);
  }
  if (!(scaling.factor > 0.0)) {
    throw_bad_input("{}: RoPE's scaling factor is {}, a positive number is needed", given.where(),
                    scaling.factor);
  }
  return scaling;
}

// RoPE with base `theta`, scaled as `given` says. An unknown rope_type makes the model not
// computable.
RopeSpec read_one_rope(ModelSpec& spec, const ConfigReader& config, const ConfigReader& given,
                       double theta, const RopeDefaults& defaults) {
  RopeSpec rope;
  rope.theta = theta;
  const double partial = given.number_or(
      {"partial_rotary_factor"}, config.number_or({defaults.keys.partial}, defaults.partial));
  const double rotary = static_cast<double>(spec.head_dim) * partial;
  const bool fits = rotary >= 0.0 && rotary <= static_cast<double>(spec.head_dim);
  // A value that does not fit may be too large to convert to an integer.
  rope.rotary_dim = fits ? static_cast<std::int64_t>(rotary) : 0;
  if (!(theta > 0.0) || !fits || rope.rotary_dim % 2 != 0) {
    throw_bad_input("{}: RoPE with theta {} on {} of {} dimensions; an even part is needed",
                    config.where(), theta, rotary, spec.head_dim);
  }
  const std::string type = given.text_or({"rope_type", "type"}, "default");
  // Phi-3's first configs call LongRoPE "su" or "yarn".
  const bool longrope = type == "longrope" || type == "su" ||
                        (type == "yarn" && given.find("short_factor") != nullptr);
  const auto positions = static_cast<double>(spec.max_positions.value_or(0));
  const double original = defaults.original_positions.value_or(
      given.number_or({"original_max_position_embeddings"}, positions));
  if (longrope) {
    rope.scaling = read_longrope(given, positions, original, rope.rotary_dim / 2);
  } else if (type == "linear" || type == "dynamic" || type == "llama3" || type == "yarn") {
    rope.scaling = read_scaling(given, type, positions, original);
  } else if (type != "default") {
    spec.not_computable = "rope_type " + printable(type);
  }
  return rope;
}

}  // namespace

void read_rope(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& defaults) {
  const ConfigReader old_style = config.object("rope_scaling");
  const ConfigReader given = old_style.empty() ? config.object("rope_parameters") : old_style;
  const double theta =
      given.number_or({"rope_theta"}, config.number_or({defaults.keys.theta}, defaults.theta));
  spec.positions = PositionKind::kRope;
  // transformers 5 prefers the model's key to the one in the scaling.
  RopeDefaults of_model = defaults;
  if (const auto original = config.optional_number({"original_max_position_embeddings"})) {
    of_model.original_positions = original;
  }
  spec.rope = read_one_rope(spec, config, given, theta, of_model);
}

void read_rope_of_windows(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& whole,
                          const RopeDefaults& in_window) {
  const ConfigReader kinds = config.object("rope_parameters");
  const ConfigReader of_whole = kinds.object("full_attention");
  const ConfigReader of_window = kinds.object("sliding_attention");
  const ConfigReader scaling = config.object("rope_scaling");
  if (!kinds.empty() && (of_whole.empty() || of_window.empty() || !scaling.empty())) {
    throw_bad_input(
        "{}: rope_parameters must have full_attention and sliding_attention, and there must be no "
        "rope_scaling",
        config.where());
  }
  const ConfigReader& given = kinds.empty() ? scaling : of_whole;
  spec.positions = PositionKind::kRope;
  spec.rope =
      read_one_rope(spec, config, given, given.number_or({"rope_theta"}, whole.theta), whole);
  spec.window_rope = read_one_rope(spec, config, of_window,
                                   of_window.number_or({"rope_theta"}, in_window.theta), in_window);
  if (!spec.sliding_window || spec.window_rope == spec.rope) {
    spec.window_rope.reset();
  }
}

}  // namespace regroup

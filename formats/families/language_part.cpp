#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/families/families.h"
#include "formats/spec/tensor_names.h"

namespace regroup {
namespace {

// A model that text alone passes through as through its language model.
struct WholeModel {
  std::string_view model_type;
  std::string_view text_type;  // of the language model, if its config does not say
  bool keys_at_top = false;    // configs without an object for the language model have its keys
  bool tied = false;           // the class's value for an absent tie_word_embeddings
};

constexpr auto kWholeModels = std::to_array<WholeModel>({
    {"llava", "llama"},
    {"llava_next", "llama"},
    {"llava_next_video", "llama"},
    {"llava_onevision", "qwen2"},
    {"video_llava", "llama"},
    {"vipllava", "llama"},
    {"mistral3", "mistral", false, true},
    {"internvl", "qwen2", false, true},
    {"idefics3", "llama"},
    {"smolvlm", "llama"},
    {"qwen2_vl", "qwen2_vl_text", true},
    {"qwen2_5_vl", "qwen2_5_vl_text", true},
    {"qwen3_vl", "qwen3_vl_text"},
    {"qwen2_audio", "qwen2"},
    {"gemma3", "gemma3_text", false, true},
});

// The first LLaVA's own configs have no object for the language model either.
constexpr auto kFirstLlavas = std::to_array<WholeModel>({
    {"llava", "llama"},
    {"llava_llama", "llama"},
    {"llava_mistral", "mistral"},
    {"llava_qwen", "qwen2"},
});

// The language model's model_type in a whole model, the family's that computes the same, and the
// values that transformers uses for absent keys where describe_model() has none or others.
struct TextType {
  std::string_view model_type, family_type, defaults;
};

constexpr std::string_view kQwenVlDefaults = R"({"hidden_size": 8192, "intermediate_size": 29568,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 152064, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6, "max_window_layers": 80})";

constexpr auto kTextTypes = std::to_array<TextType>({
    {"llama", "llama", R"({"hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
        "max_position_embeddings": 2048})"},
    {"mistral", "mistral", R"({"hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
        "max_position_embeddings": 131072})"},
    {"qwen2", "qwen2", R"({"hidden_size": 4096, "intermediate_size": 22016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 151936,
        "max_position_embeddings": 32768})"},
    {"qwen3", "qwen3", R"({"hidden_size": 4096, "intermediate_size": 22016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 32768})"},
    {"phi3", "phi3", R"({"hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32064,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    {"gemma", "gemma", R"({"hidden_size": 3072, "intermediate_size": 24576,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
        "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192})"},
    {"gemma2", "gemma2", R"({"hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192})"},
    {"gemma3_text", "gemma3_text", R"({"hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "vocab_size": 262208,
        "max_position_embeddings": 131072})"},
    {"qwen2_vl_text", "qwen2", kQwenVlDefaults},
    {"qwen2_5_vl_text", "qwen2", kQwenVlDefaults},
    {"qwen3_vl_text", "qwen3", R"({"hidden_size": 4096, "intermediate_size": 22016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 151936,
        "max_position_embeddings": 128000, "rope_theta": 5e5})"},
});

// The prefix of the language model's tensors, and what they have instead of it in a model of its
// own. The output head may have no prefix.
struct Prefix {
  std::string_view stored, alone;
};
constexpr auto kPartPrefixes = std::to_array<Prefix>({
    {"language_model.", ""},
    {"model.language_model.", "model."},
    {"model.text_model.", "model."},
});
constexpr std::string_view kHead = "lm_head.";

template <typename Row, std::size_t size>
const Row* row_of(const std::array<Row, size>& rows, std::string_view model_type) {
  const auto row = std::ranges::find(rows, model_type, &Row::model_type);
  return row == rows.end() ? nullptr : &*row;
}

// The prefix that the checkpoint has; null if the names are those of a language model
// alone.
const Prefix* prefix_in(const Checkpoint& checkpoint) {
  const auto has = [&](const Prefix& prefix) {
    const auto& tensors = checkpoint.tensors();
    return std::ranges::any_of(
        tensors, [&](const TensorInfo& tensor) { return tensor.name.starts_with(prefix.stored); });
  };
  const auto found = std::ranges::find_if(kPartPrefixes, has);
  return found == kPartPrefixes.end() ? nullptr : &*found;
}

std::string with_prefix(const Prefix& prefix, const std::string& name) {
  return name.starts_with(prefix.alone)
             ? std::string(prefix.stored) + name.substr(prefix.alone.size())
             : name;
}

// The name of the config's object for the language model; empty if there is none.
std::string key_of_part(const ConfigReader& config) {
  for (const std::string_view key : {"text_config", "llm_config", "language_config"}) {
    const Json* found = config.find(key);
    if (found != nullptr && found->is_object()) {
      return std::string(key);
    }
  }
  return "";
}

void add_defaults(Json& config, std::string_view defaults) {
  const Json values = Json::parse(defaults);
  for (const auto& [key, value] : values.items()) {
    if (!config.contains(key)) {
      config[key] = value;
    }
  }
}

// In text, the three positions of a token (time, height, width) are equal, and RoPE with a section
// for each is RoPE.
void read_sections_as_one(Json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto scaling = config.find(key);
    if (scaling == config.end() || !scaling->is_object()) {
      continue;
    }
    for (const char* kind : {"type", "rope_type"}) {
      if (const auto type = scaling->find(kind); type != scaling->end() && *type == "mrope") {
        *type = "default";
      }
    }
  }
}

// The whole model's setting takes precedence, as in transformers. Defaults differ between versions
// and classes, and versions saved the setting in either config, so the tensors decide where no
// config does, and a head that is not stored is tied if anything says so.
void settle_tied_embeddings(Json& alone, const ModelConfig& config, const WholeModel* whole) {
  constexpr std::string_view kKey = "tie_word_embeddings";
  const bool stored =
      config.stores("lm_head.weight") || config.stores("language_model.lm_head.weight");
  const Json* said = config.find(kKey);
  if (!stored && (config.flag_or({kKey}, whole != nullptr && whole->tied) ||
                  ConfigReader(alone, config.where()).flag_or({kKey}, false))) {
    alone[kKey] = true;
  } else if (said != nullptr) {
    alone[kKey] = *said;
  } else if (stored) {
    alone[kKey] = false;
  }
}

// Some versions of transformers wrote the language model's keys a second time at the top, where
// older versions read them.
void note_copy_at_top(ModelSpec& spec, const LanguagePart& part, const ConfigReader& config) {
  const std::string& key = spec.kv_heads_key.front();
  const Json* copy = spec.kv_heads_key.size() == 1 ? config.find(key) : nullptr;
  if (copy == nullptr) {
    return;
  }
  const auto own = part.config.find(key);
  if (own == part.config.end() || *own != *copy) {
    throw_bad_input("{}: {} is {} at the top and {} in {}: loaders differ in which they read",
                    config.where(), key, printable_json(*copy),
                    own == part.config.end() ? "absent" : printable_json(*own), part.path.front());
  }
  spec.kv_heads_copies.push_back({key});
}

std::string type_of_part(const ConfigReader& part, const WholeModel* whole) {
  std::string type = part.text_or({"model_type"}, "");
  if (type.empty() && whole != nullptr) {
    type = whole->text_type;
  }
  return type;
}

// For a config that has the language model's keys at its top.
std::optional<LanguagePart> part_at_top(const Json& config, const std::string& model_type) {
  const WholeModel* whole = row_of(kWholeModels, model_type);
  const WholeModel* first = row_of(kFirstLlavas, model_type);
  const bool own_class = whole != nullptr && whole->keys_at_top;
  if (!own_class && (first == nullptr || !config.contains("hidden_size"))) {
    return std::nullopt;
  }
  LanguagePart part{model_type, {}, config, ""};
  part.config["model_type"] = own_class ? whole->text_type : first->text_type;
  part.not_computable = own_class ? "" : "a part of " + model_type + ", which runs code of its own";
  return part;
}

}  // namespace

std::optional<LanguagePart> find_language_part(const ModelConfig& config) {
  const std::string model_type = config.text_or({"model_type"}, "");
  const std::string key = key_of_part(config);
  std::optional<LanguagePart> part;
  const WholeModel* whole = row_of(kWholeModels, model_type);
  if (key.empty()) {
    part = part_at_top(config.json(), model_type);
  } else if (!model_type.empty()) {
    part = {model_type, {key}, *config.find(key), ""};
    part->config["model_type"] = type_of_part(config.object(key), whole);
    if (whole == nullptr) {
      part->not_computable =
          "a part of " + printable(model_type) + ", whose computation of text is not known";
    }
  }
  if (!part) {
    return std::nullopt;
  }
  if (const TextType* type = row_of(kTextTypes, part->config["model_type"].get<std::string>())) {
    part->config["model_type"] = type->family_type;
    add_defaults(part->config, type->defaults);
  }
  read_sections_as_one(part->config);
  settle_tied_embeddings(part->config, config, whole);
  return part;
}

Checkpoint tensors_of_language_part(const ModelConfig& config) {
  const Checkpoint& checkpoint = config.checkpoint;
  const Prefix* prefix = prefix_in(checkpoint);
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const bool has_prefix = prefix != nullptr && tensor.name.starts_with(prefix->stored);
    const bool has_own_name =
        prefix == nullptr || (!prefix->alone.empty() && tensor.name.starts_with(kHead));
    if (has_prefix || has_own_name) {
      tensors.push_back(tensor);
    }
    if (has_prefix) {
      tensors.back().name = std::string(prefix->alone) + tensor.name.substr(prefix->stored.size());
    }
  }
  if (tensors.empty() && !checkpoint.files().empty()) {
    throw_bad_input("{}: describes a language model of which {} has no tensor", config.where(),
                    place_of(checkpoint));
  }
  return {{}, std::move(tensors)};
}

ModelSpec as_part(ModelSpec spec, const LanguagePart& part, const ModelConfig& config) {
  if (const Prefix* prefix = prefix_in(config.checkpoint)) {
    rename_tensors(spec, [&](const std::string& name) { return with_prefix(*prefix, name); });
  }
  spec.whole_model = part.whole_model;
  spec.config_path = part.path;
  if (spec.not_computable.empty()) {
    spec.not_computable = part.not_computable;
  }
  if (part.path.empty()) {
    return spec;
  }
  if (spec.layer_configs_key.empty()) {
    note_copy_at_top(spec, part, config);
  }
  for (std::vector<std::string>* key : {&spec.kv_heads_key, &spec.layer_configs_key}) {
    if (!key->empty()) {
      key->insert(key->begin(), part.path.begin(), part.path.end());
    }
  }
  return spec;
}

}  // namespace regroup

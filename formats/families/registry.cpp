#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "formats/error.h"
#include "formats/families/families.h"
#include "formats/families/family.h"
#include "formats/printable.h"

namespace regroup {
namespace {

struct FamilyRow {
  std::string_view model_type;    // the config's, what transformers dispatches on
  std::string_view architecture;  // its language model
  std::string_view family;
  ModelSpec (*describe)(const ConfigReader&, const Checkpoint&);
};

constexpr std::array<FamilyRow, 26> kFamilies{{
    {"llama", "LlamaForCausalLM", "llama", describe_llama},
    {"mistral", "MistralForCausalLM", "llama", describe_mistral},
    {"qwen2", "Qwen2ForCausalLM", "llama", describe_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "llama", describe_qwen3},
    {"gemma", "GemmaForCausalLM", "gemma", describe_gemma},
    {"olmo", "OlmoForCausalLM", "olmo", describe_olmo},
    {"olmo2", "Olmo2ForCausalLM", "olmo", describe_olmo2},
    {"phi", "PhiForCausalLM", "phi", describe_phi},
    {"stablelm", "StableLmForCausalLM", "stablelm", describe_stablelm},
    {"starcoder2", "Starcoder2ForCausalLM", "starcoder2", describe_starcoder2},
    {"nemotron", "NemotronForCausalLM", "nemotron", describe_nemotron},
    {"nemotron-nas", "DeciLMForCausalLM", "decilm", describe_nemotron_nas},
    {"deci", "DeciLMForCausalLM", "decilm", describe_deci},
    {"gpt2", "GPT2LMHeadModel", "gpt2", describe_gpt2},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", "gpt_bigcode", describe_gpt_bigcode},
    {"gpt_neox", "GPTNeoXForCausalLM", "gpt_neox", describe_gpt_neox},
    {"gptj", "GPTJForCausalLM", "gptj", describe_gptj},
    {"bloom", "BloomForCausalLM", "bloom", describe_bloom},
    {"mpt", "MptForCausalLM", "mpt", describe_mpt},
    {"falcon", "FalconForCausalLM", "falcon", describe_falcon},
    {"opt", "OPTForCausalLM", "opt", describe_opt},
    {"t5", "T5ForConditionalGeneration", "t5", describe_t5},
    {"mt5", "MT5ForConditionalGeneration", "t5", describe_mt5},
    {"umt5", "UMT5ForConditionalGeneration", "t5", describe_umt5},
    {"bert", "BertForMaskedLM", "bert", describe_bert},
    {"roberta", "RobertaForMaskedLM", "bert", describe_roberta},
}};

// Before the model_type and architecture of models whose positions were changed to ALiBi.
constexpr std::string_view kAlibiModelType = "regroup_alibi_";
constexpr std::string_view kAlibiArchitecture = "RegroupAlibi";

// Cuts `prefix` off; returns whether it was there.
bool cut_prefix(std::string& text, std::string_view prefix) {
  const bool there = text.starts_with(prefix);
  text.erase(0, there ? prefix.size() : 0);
  return there;
}

std::string architecture_of(const ConfigReader& config) {
  const Json* list = config.find("architectures");
  return list != nullptr && list->is_array() && !list->empty() && list->front().is_string()
             ? list->front().get<std::string>()
             : "";
}

void refuse_quantised(const ConfigReader& config) {
  if (config.find("quantization_config") != nullptr) {
    throw_bad_input(
        "{}: quantization_config is set; quantised weights cannot be pooled, use the "
        "checkpoint they were made from",
        config.where());
  }
}

}  // namespace

std::string with_alibi_names(const std::string& config_text, const Json& config) {
  const ConfigReader reader(config, "config.json");
  std::string model_type = reader.text_or({"model_type"}, "");
  std::string architecture = architecture_of(reader);
  cut_prefix(model_type, kAlibiModelType);
  cut_prefix(architecture, kAlibiArchitecture);
  const auto quoted = [](std::string_view prefix, const std::string& name) {
    return Json(std::string(prefix) + name).dump();
  };
  std::string text = config_text;
  if (!model_type.empty()) {
    text = with_member(text, {"model_type"}, quoted(kAlibiModelType, model_type));
  }
  if (!architecture.empty()) {
    text =
        with_member(text, {"architectures"}, "[" + quoted(kAlibiArchitecture, architecture) + "]");
  }
  return text;
}

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  for (const FamilyRow& row : kFamilies) {
    names.push_back(row.architecture);
  }
  return names;
}

std::string_view architecture_of_model_type(std::string_view model_type) {
  for (const FamilyRow& row : kFamilies) {
    if (row.model_type == model_type) {
      return row.architecture;
    }
  }
  return "";
}

std::string_view family_of_architecture(std::string_view architecture) {
  for (const FamilyRow& row : kFamilies) {
    if (row.architecture == architecture) {
      return row.family;
    }
  }
  return "unknown";
}

namespace {

// One row per layer, or one for all of them; none where there is no such key.
std::vector<std::vector<double>> slopes_at(const ConfigReader& alibi, std::string_view key) {
  const Json* slopes = alibi.find(key);
  if (slopes == nullptr) {
    return {};
  }
  try {
    if (slopes->is_array() && !slopes->empty() && slopes->front().is_array()) {
      return slopes->get<std::vector<std::vector<double>>>();
    }
    return {slopes->get<std::vector<double>>()};
  } catch (const Json::exception&) {
    throw_bad_input("{}: regroup.alibi.{} is no list of numbers", alibi.where(), key);
  }
}

}  // namespace

void read_recorded_slopes(ModelSpec& spec, const Json& json, std::string_view where) {
  const ConfigReader config(json, where);
  const ConfigReader alibi = config.object("regroup").object("alibi");
  spec.alibi.bias_max = alibi.number_or({"bias_max"}, spec.alibi.bias_max);
  spec.alibi.slopes = slopes_at(alibi, "slopes");
  spec.alibi.encoder_slopes = slopes_at(alibi, "encoder_slopes");
}

ModelSpec describe_model(const Json& json, const Checkpoint& checkpoint, std::string_view where) {
  const ConfigReader config(json, where);
  std::string model_type = config.text_or({"model_type"}, "");
  std::string architecture = architecture_of(config);
  const bool type_changed = cut_prefix(model_type, kAlibiModelType);
  const bool positions_changed = cut_prefix(architecture, kAlibiArchitecture) || type_changed;
  const auto row = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const FamilyRow& family) {
    return model_type.empty() ? family.architecture == architecture
                              : family.model_type == model_type;
  });
  if (row == kFamilies.end()) {
    throw_bad_input(
        "{}: unknown architecture {} (model_type {}); known: {}; to convert or inspect "
        "others, --layout FILE can describe them",
        where, architecture.empty() ? "none" : printable(architecture),
        model_type.empty() ? "none" : printable(model_type),
        fmt::join(known_architectures(), ", "));
  }
  refuse_quantised(config);
  ModelSpec spec = row->describe(config, checkpoint);
  spec.family = row->family;
  spec.architecture = architecture.empty() ? std::string(row->architecture) : architecture;
  if (positions_changed) {
    use_alibi(spec);
    spec.loaders_read_kv_heads = false;
    spec.multi_query_key.clear();
  }
  if (spec.positions == PositionKind::kAlibi) {
    read_recorded_slopes(spec, json, where);
  }
  return spec;
}

}  // namespace regroup

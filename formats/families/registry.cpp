#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/families.h"
#include "formats/families/family.h"
#include "formats/families/unknown_architecture.h"
#include "formats/spec/alibi.h"
#include "formats/spec/tensor_names.h"

namespace regroup {
namespace {

struct FamilyRow {
  std::string_view model_type;    // the config's; transformers dispatches on it
  std::string_view architecture;  // of the language model
  std::string_view family;
  DescribeFamily* describe;
};

constexpr std::array<FamilyRow, 66> kFamilies{{
    {"llama", "LlamaForCausalLM", "llama", describe_llama},
    {"mistral", "MistralForCausalLM", "llama", describe_mistral},
    {"qwen2", "Qwen2ForCausalLM", "llama", describe_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "llama", describe_qwen3},
    {"gemma", "GemmaForCausalLM", "gemma", describe_gemma},
    {"gemma2", "Gemma2ForCausalLM", "gemma", describe_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", "gemma", describe_gemma3},
    {"olmo", "OlmoForCausalLM", "olmo", describe_olmo},
    {"olmo2", "Olmo2ForCausalLM", "olmo", describe_olmo2},
    {"olmo3", "Olmo3ForCausalLM", "olmo", describe_olmo3},
    {"phi", "PhiForCausalLM", "phi", describe_phi},
    {"phi3", "Phi3ForCausalLM", "phi3", describe_phi3},
    {"cohere", "CohereForCausalLM", "cohere", describe_cohere},
    {"cohere2", "Cohere2ForCausalLM", "cohere", describe_cohere2},
    {"granite", "GraniteForCausalLM", "granite", describe_granite},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3", describe_smollm3},
    {"olmoe", "OlmoeForCausalLM", "olmoe", describe_olmoe},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "qwen_moe", describe_qwen2_moe},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen_moe", describe_qwen3_moe},
    {"mixtral", "MixtralForCausalLM", "mixtral", describe_mixtral},
    {"granitemoe", "GraniteMoeForCausalLM", "granitemoe", describe_granitemoe},
    {"deepseek", "DeepseekForCausalLM", "deepseek", describe_deepseek},
    {"stablelm", "StableLmForCausalLM", "stablelm", describe_stablelm},
    {"starcoder2", "Starcoder2ForCausalLM", "starcoder2", describe_starcoder2},
    {"nemotron", "NemotronForCausalLM", "nemotron", describe_nemotron},
    {"baichuan", "BaichuanForCausalLM", "baichuan", describe_baichuan},
    {"baichuan", "BaiChuanForCausalLM", "baichuan", describe_baichuan},  // the first 7B
    {"minicpm", "MiniCPMForCausalLM", "minicpm", describe_minicpm},
    {"qwen", "QWenLMHeadModel", "qwen", describe_qwen},
    {"chatglm", "ChatGLMModel", "chatglm", describe_chatglm},
    {"glm", "GlmForCausalLM", "glm", describe_glm},
    {"internlm", "InternLMForCausalLM", "internlm", describe_internlm},
    {"internlm2", "InternLM2ForCausalLM", "internlm2", describe_internlm2},
    {"nemotron-nas", "DeciLMForCausalLM", "decilm", describe_nemotron_nas},
    {"deci", "DeciLMForCausalLM", "decilm", describe_deci},
    {"gpt2", "GPT2LMHeadModel", "gpt2", describe_gpt2},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", "gpt_bigcode", describe_gpt_bigcode},
    {"gpt_neox", "GPTNeoXForCausalLM", "gpt_neox", describe_gpt_neox},
    {"gpt_neo", "GPTNeoForCausalLM", "gpt_neo", describe_gpt_neo},
    {"gptj", "GPTJForCausalLM", "gptj", describe_gptj},
    {"codegen", "CodeGenForCausalLM", "codegen", describe_codegen},
    {"bloom", "BloomForCausalLM", "bloom", describe_bloom},
    {"mpt", "MptForCausalLM", "mpt", describe_mpt},
    {"falcon", "FalconForCausalLM", "falcon", describe_falcon},
    {"opt", "OPTForCausalLM", "opt", describe_opt},
    {"biogpt", "BioGptForCausalLM", "biogpt", describe_biogpt},
    {"xglm", "XGLMForCausalLM", "xglm", describe_xglm},
    {"persimmon", "PersimmonForCausalLM", "persimmon", describe_persimmon},
    {"t5", "T5ForConditionalGeneration", "t5", describe_t5},
    {"mt5", "MT5ForConditionalGeneration", "t5", describe_mt5},
    {"umt5", "UMT5ForConditionalGeneration", "t5", describe_umt5},
    {"bart", "BartForConditionalGeneration", "bart", describe_bart},
    {"mbart", "MBartForConditionalGeneration", "bart", describe_mbart},
    {"marian", "MarianMTModel", "marian", describe_marian},
    {"m2m_100", "M2M100ForConditionalGeneration", "m2m_100", describe_m2m_100},
    {"pegasus", "PegasusForConditionalGeneration", "pegasus", describe_pegasus},
    {"whisper", "WhisperForConditionalGeneration", "whisper", describe_whisper},
    {"bert", "BertForMaskedLM", "bert", describe_bert},
    {"roberta", "RobertaForMaskedLM", "bert", describe_roberta},
    {"xlm-roberta", "XLMRobertaForMaskedLM", "bert", describe_roberta},
    {"camembert", "CamembertForMaskedLM", "bert", describe_roberta},
    {"electra", "ElectraForMaskedLM", "bert", describe_electra},
    {"distilbert", "DistilBertForMaskedLM", "bert", describe_distilbert},
    {"mpnet", "MPNetForMaskedLM", "bert", describe_mpnet},
    {"nomic_bert", "NomicBertForMaskedLM", "nomic_bert", describe_nomic_bert},
    {"modernbert", "ModernBertForMaskedLM", "modernbert", describe_modernbert},
}};

// Prefixes of model_type and architecture for models that stock loaders would compute wrongly,
// because positions were changed to ALiBi or heads were reordered with their ALiBi slopes.
constexpr std::string_view kAlibiModelType = "regroup_alibi_";
constexpr std::string_view kAlibiArchitecture = "RegroupAlibi";
// The prefix of the classes in loaders/, which transformers saves as the architecture.
constexpr std::string_view kLoaderArchitecture = "Regroup";

// Removes `prefix`; returns whether it was present.
bool cut_prefix(std::string& text, std::string_view prefix) {
  const bool there = text.starts_with(prefix);
  text.erase(0, there ? prefix.size() : 0);
  return there;
}

const FamilyRow* find_family(std::string_view model_type, std::string_view architecture) {
  const auto* row = model_type.empty()
                        ? std::ranges::find(kFamilies, architecture, &FamilyRow::architecture)
                        : std::ranges::find(kFamilies, model_type, &FamilyRow::model_type);
  return row == kFamilies.end() ? nullptr : row;
}

// The names in a config, without regroup's prefixes.
struct Names {
  std::string model_type, architecture;
  bool own = false;  // whether there was a prefix
};

Names names_in(const ConfigReader& config) {
  Names names{config.text_or({"model_type"}, ""), architecture_of(config.json())};
  const bool own_type = cut_prefix(names.model_type, kAlibiModelType);
  names.own = cut_prefix(names.architecture, kAlibiArchitecture) || own_type;
  cut_prefix(names.architecture, kLoaderArchitecture);
  return names;
}

// One row per layer, or one for all layers; none if the key is absent.
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

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const FamilyRow& row : kFamilies) {
    names.emplace_back(row.model_type);
  }
  return names;
}

// In checkpoints converted from TensorFlow, weight and bias of a LayerNorm are gamma and beta.
std::string name_of_norm(const std::string& name, const Checkpoint& checkpoint) {
  const std::string old =
      name.substr(0, name.rfind('.') + 1) + (name.ends_with(".bias") ? "beta" : "gamma");
  return checkpoint.find(old) != nullptr ? old : name;
}

// Describes a config whose language model is not a part of another model.
ModelSpec describe_alone(const ModelConfig& config) {
  const auto& [model_type, architecture, own_names] = names_in(config);
  const FamilyRow* row = find_family(model_type, architecture);
  if (row == nullptr) {
    throw_bad_input("{}: {}", config.where(),
                    refusal_of_architecture(config, model_type, architecture, known_model_types()));
  }
  ModelSpec spec = row->describe(config);
  rename_tensors(spec,
                 [&](const std::string& name) { return name_of_norm(name, config.checkpoint); });
  spec.family = row->family;
  spec.architecture = architecture.empty() ? std::string(row->architecture) : architecture;
  if (own_names) {
    if (spec.positions != PositionKind::kAlibi) {
      use_alibi(spec);
    }
    spec.loaders_read_kv_heads = false;
    spec.multi_query_key.clear();
  }
  return spec;
}

// The first parts, with their dots, of the names that end as `name` does in its last two parts.
std::set<std::string> holders_of(const std::string& name, const Checkpoint& checkpoint) {
  const std::size_t end = name.rfind('.', name.rfind('.') - 1);
  const std::string suffix = "." + name.substr(end + 1);  // npos + 1 is 0
  std::set<std::string> holders;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.name.ends_with(suffix)) {
      holders.insert(tensor.name.substr(0, tensor.name.find('.') + 1));
    }
  }
  return holders;
}

Checkpoint tensors_held(const std::string& holder, const Checkpoint& checkpoint) {
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.name.starts_with(holder)) {
      tensors.push_back(tensor);
      tensors.back().name.erase(0, holder.size());
    }
  }
  return {{}, std::move(tensors)};
}

// As describe_alone(), also for classes that hold the model under a name that its other classes do
// not have, such as "transformer." in Llama's for question answering. It is what stands before the
// embedding's name, if that is unambiguous.
ModelSpec describe_held(const ModelConfig& config) {
  constexpr std::size_t kMostHolders = 4;  // each is described
  ModelSpec spec = describe_alone(config);
  const std::set<std::string> holders = holders_of(spec.token_embedding, config.checkpoint);
  if (config.stores(spec.token_embedding) || holders.size() > kMostHolders) {
    return spec;
  }
  std::optional<ModelSpec> held;
  for (const std::string& holder : holders) {
    const Checkpoint tensors = tensors_held(holder, config.checkpoint);
    ModelSpec found = describe_alone(ModelConfig(config.json(), config.where(), tensors));
    if (tensors.find(found.token_embedding) == nullptr) {
      continue;
    }
    if (held) {
      return spec;
    }
    rename_tensors(found, [&](const std::string& name) { return holder + name; });
    held = std::move(found);
  }
  return std::move(held).value_or(std::move(spec));
}

ModelSpec describe_part(const LanguagePart& part, const ModelConfig& config) {
  const std::string where = part.path.empty()
                                ? config.where()
                                : fmt::format("{}: {}", config.where(), fmt::join(part.path, "."));
  const Checkpoint tensors = tensors_of_language_part(config);
  ModelSpec spec = describe_alone(ModelConfig(part.config, where, tensors));
  spec.architecture = architecture_of(config.json());
  if (spec.architecture.empty()) {
    spec.architecture = part.whole_model;
  }
  return as_part(std::move(spec), part, config);
}

}  // namespace

std::string architecture_of(const Json& config) {
  const Json& list = member_of(config, "architectures");
  const bool named = list.is_array() && !list.empty() && list.front().is_string();
  return named ? list.front().get<std::string>() : "";
}

std::string with_alibi_names(const std::string& config_text) {
  const Json config = parse_json_object(config_text, "config.json");
  Names names = names_in(ConfigReader(config, "config.json"));
  if (names.model_type.empty()) {
    // Without a model_type, loaders guess it from the directory's name.
    const FamilyRow* row = find_family("", names.architecture);
    names.model_type = row == nullptr ? "custom" : row->model_type;
  }
  const auto quoted = [](std::string_view prefix, const std::string& name) {
    return Json(std::string(prefix) + name).dump();
  };
  std::string text =
      with_member(config_text, {"model_type"}, quoted(kAlibiModelType, names.model_type));
  if (!names.architecture.empty()) {
    text = with_member(text, {"architectures"},
                       "[" + quoted(kAlibiArchitecture, names.architecture) + "]");
  }
  // With this key, loaders run the model's own code, regardless of its name.
  return config.contains("auto_map") ? with_member(text, {"auto_map"}, "{}") : text;
}

std::string with_stock_architecture(const std::string& config_text) {
  const Json config = parse_json_object(config_text, "config.json");
  const Names names = names_in(ConfigReader(config, "config.json"));
  const std::string before = architecture_of(config);
  return names.own || names.architecture == before
             ? config_text
             : with_member(config_text, {"architectures"},
                           Json::array({names.architecture}).dump());
}

std::string stock_model_type(const Json& config) {
  return names_in(ConfigReader(config, "config.json")).model_type;
}

bool has_alibi_names(const Json& config) {
  const Json& type = member_of(config, "model_type");
  const bool own_type =
      type.is_string() && type.get_ref<const std::string&>().starts_with(kAlibiModelType);
  return own_type || architecture_of(config).starts_with(kAlibiArchitecture);
}

std::string_view architecture_of_model_type(std::string_view model_type) {
  const auto* row = std::ranges::find(kFamilies, model_type, &FamilyRow::model_type);
  return row == kFamilies.end() ? "" : row->architecture;
}

std::string_view family_of_architecture(std::string_view architecture) {
  const auto* row = std::ranges::find(kFamilies, architecture, &FamilyRow::architecture);
  return row == kFamilies.end() ? "unknown" : row->family;
}

void read_recorded_slopes(ModelSpec& spec, const Json& json, std::string_view where) {
  const ConfigReader config(json, where);
  const ConfigReader alibi = config.object("regroup").object("alibi");
  spec.alibi.slopes = slopes_at(alibi, "slopes");
  spec.alibi.encoder_slopes = slopes_at(alibi, "encoder_slopes");
  // The spec keeps the family's bias_max, which loaders use. Slopes for another one are stored.
  const double bias_max = alibi.number_or({"bias_max"}, spec.alibi.bias_max);
  if (bias_max != spec.alibi.bias_max && spec.alibi.slopes.empty()) {
    spec.alibi.slopes = {alibi_slopes(spec.query_heads, bias_max)};
  }
}

ModelSpec describe_model(const Json& json, const Checkpoint& checkpoint, std::string_view where) {
  const ModelConfig config(json, where, checkpoint);
  const Names names = names_in(config);
  const bool known = names.own || find_family(names.model_type, names.architecture) != nullptr;
  const auto part = known ? std::nullopt : find_language_part(config);
  const auto wrong = known || part ? check_quantisation(config) : std::vector<std::string>();
  ModelSpec spec = part ? describe_part(*part, config) : describe_held(config);
  settle_ties(spec, checkpoint);
  append(spec.contradictions, wrong);
  note_unread_tensors(spec, checkpoint);
  if (spec.positions == PositionKind::kAlibi) {
    read_recorded_slopes(spec, json, where);
  }
  return spec;
}

}  // namespace regroup

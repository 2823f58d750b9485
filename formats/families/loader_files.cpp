#include "formats/families/loader_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace regroup {
namespace {

// In the order of the file's classes.
constexpr std::array<AutoClass, 2> kCausal{
    {{"AutoModel", "Model"}, {"AutoModelForCausalLM", "ForCausalLM"}}};
constexpr std::array<AutoClass, 2> kGpt2Classes{
    {{"AutoModel", "Model"}, {"AutoModelForCausalLM", "LMHeadModel"}}};
constexpr std::array<AutoClass, 3> kEncoderDecoder{
    {{"AutoModel", "Model"},
     {"AutoModelForSeq2SeqLM", "ForConditionalGeneration"},
     {"AutoModelForTextEncoding", "EncoderModel"}}};
constexpr std::array<AutoClass, 2> kTwoStacks{
    {{"AutoModelForSeq2SeqLM", "ForConditionalGeneration"}, {"AutoModel", "Model"}}};
constexpr std::array<AutoClass, 2> kMarian{
    {{"AutoModel", "Model"}, {"AutoModelForSeq2SeqLM", "MTModel"}}};
constexpr std::array<AutoClass, 2> kSpeech{
    {{"AutoModelForSpeechSeq2Seq", "ForConditionalGeneration"}, {"AutoModel", "Model"}}};
constexpr std::array<AutoClass, 4> kBart{
    {{"AutoModelForSeq2SeqLM", "ForConditionalGeneration"},
     {"AutoModelForQuestionAnswering", "ForQuestionAnswering"},
     {"AutoModelForSequenceClassification", "ForSequenceClassification"},
     {"AutoModel", "Model"}}};
constexpr std::array<AutoClass, 5> kEncoder{
    {{"AutoModel", "Model"},
     {"AutoModelForMaskedLM", "ForMaskedLM"},
     {"AutoModelForSequenceClassification", "ForSequenceClassification"},
     {"AutoModelForTokenClassification", "ForTokenClassification"},
     {"AutoModelForQuestionAnswering", "ForQuestionAnswering"}}};

// With a config, which has the list.
constexpr std::array<AutoClass, 3> kLayers{
    {{"AutoConfig", "Config"}, {"AutoModel", "Model"}, {"AutoModelForCausalLM", "ForCausalLM"}}};
constexpr std::array<AutoClass, 3> kGemma3Layers{{{"AutoConfig", "TextConfig"},
                                                  {"AutoModel", "TextModel"},
                                                  {"AutoModelForCausalLM", "ForCausalLM"}}};

// Not in the text of a file, which makes them when they are asked for: not each version of
// transformers has all of them.
constexpr std::array<AutoClass, 10> kMadeClasses{
    {{"AutoModelForSequenceClassification", "ForSequenceClassification"},
     {"AutoModelForTokenClassification", "ForTokenClassification"},
     {"AutoModelForQuestionAnswering", "ForQuestionAnswering"},
     {"AutoModelForMultipleChoice", "ForMultipleChoice"},
     {"AutoModelForNextSentencePrediction", "ForNextSentencePrediction"},
     {"AutoModelForPreTraining", "ForPreTraining"},
     {"AutoModelForAudioClassification", "ForAudioClassification"},
     {"AutoModelForTextEncoding", "EncoderModel"},
     {"AutoModelForCausalLM", "ForCausalLM"},
     {"AutoModelForCausalLM", "LMHeadModel"}}};

constexpr std::string_view kKeysValues = R"("k_proj", "v_proj")";
constexpr std::string_view kBertNames = R"("key", "value")";

constexpr std::string_view kT5Role = R"(
    @staticmethod
    def role(name):
        if "EncDecAttention" in name:
            return "cross_"
        return "encoder_" if name.startswith("encoder.") else ""
)";
constexpr std::string_view kBartRole = R"(
    @staticmethod
    def role(name):
        if "encoder_attn" in name:
            return "cross_"
        return "encoder_" if name.removeprefix("model.").startswith("encoder.") else ""
)";

// A row whose file is embedded as it is, because it has more than the others.
constexpr LoaderRow embedded(std::string_view model_type, std::string_view family,
                             std::span<const AutoClass> classes, std::string_view kv_heads_key,
                             bool alibi) {
  return {model_type, family, classes, "", "", "", "", "", kv_heads_key, alibi};
}

constexpr std::string_view kUsualKey = "num_key_value_heads";

// A row for results whose layers have different numbers of kv heads. All others load without code.
constexpr LoaderRow layers(std::string_view model_type, std::string_view family,
                           std::string_view title, std::span<const AutoClass> classes = kLayers) {
  return {model_type, family, classes, title, "", "", "", "", kUsualKey, false, kLayersFile};
}

const std::array<LoaderRow, 54> kLoaderRows{{
    {"gpt2", "GPT2", kGpt2Classes, "GPT-2", "Attention", "concatenated", R"("c_attn",)"},
    {"gpt_bigcode", "GPTBigCode", kCausal, "GPTBigCode", "Attention", "per group", R"("c_attn",)"},
    {"gptj", "GPTJ", kCausal, "GPT-J", "Attention", "separate", kKeysValues},
    {"gpt_neo", "GPTNeo", kCausal, "GPT-Neo", "SelfAttention", "separate", kKeysValues},
    {"xglm", "XGLM", kCausal, "XGLM", "Attention", "separate", kKeysValues},
    {"persimmon", "Persimmon", kCausal, "Persimmon", "Attention", "per group",
     R"("query_key_value",)"},
    {"opt", "OPT", kCausal, "OPT", "Attention", "separate", kKeysValues},
    {"t5", "T5", kEncoderDecoder, "T5", "Attention", "separate", R"("k", "v")", kT5Role},
    {"mt5", "MT5", kEncoderDecoder, "mT5", "Attention", "separate", R"("k", "v")", kT5Role},
    {"umt5", "UMT5", kEncoderDecoder, "UMT5", "Attention", "separate", R"("k", "v")", kT5Role},
    {"bart", "Bart", kBart, "BART", "Attention", "separate", kKeysValues, kBartRole},
    {"mbart", "MBart", kBart, "mBART", "Attention", "separate", kKeysValues, kBartRole},
    {"marian", "Marian", kMarian, "Marian", "Attention", "separate", kKeysValues, kBartRole},
    {"m2m_100", "M2M100", kTwoStacks, "M2M100", "Attention", "separate", kKeysValues, kBartRole},
    {"pegasus", "Pegasus", kTwoStacks, "Pegasus", "Attention", "separate", kKeysValues, kBartRole},
    {"bert", "Bert", kEncoder, "BERT", "SelfAttention", "separate", kBertNames},
    {"roberta", "Roberta", kEncoder, "RoBERTa", "SelfAttention", "separate", kBertNames},
    {"xlm-roberta", "XLMRoberta", kEncoder, "XLM-RoBERTa", "SelfAttention", "separate", kBertNames},
    {"camembert", "Camembert", kEncoder, "CamemBERT", "SelfAttention", "separate", kBertNames},
    {"electra", "Electra", kEncoder, "ELECTRA", "SelfAttention", "separate", kBertNames},
    {"distilbert", "DistilBert", kEncoder, "DistilBERT", "SelfAttention", "separate",
     R"("k_lin", "v_lin")"},
    {"mpnet", "MPNet", kEncoder, "MPNet", "SelfAttention", "separate", R"("k", "v")"},
    {"modernbert", "ModernBert", kEncoder, "ModernBERT", "Attention", "concatenated", R"("Wqkv",)"},
    embedded("gpt_neox", "GPTNeoX", kCausal, kUsualKey, false),
    embedded("whisper", "Whisper", kSpeech, "kv_heads", false),
    embedded("bloom", "Bloom", kCausal, kUsualKey, true),
    embedded("mpt", "Mpt", kCausal, "kv_n_heads", true),
    embedded("falcon", "Falcon", kCausal, kUsualKey, true),
    {"nemotron-nas", "DeciLM", kLayers, "", "", "", "", "", kUsualKey, false, ""},
    layers("llama", "Llama", "Llama"),
    layers("mistral", "Mistral", "Mistral"),
    layers("qwen2", "Qwen2", "Qwen2"),
    layers("qwen3", "Qwen3", "Qwen3"),
    layers("gemma", "Gemma", "Gemma"),
    layers("gemma2", "Gemma2", "Gemma 2"),
    layers("gemma3_text", "Gemma3", "Gemma 3", kGemma3Layers),
    layers("olmo", "Olmo", "OLMo"),
    layers("olmo2", "Olmo2", "OLMo 2"),
    layers("olmo3", "Olmo3", "OLMo 3"),
    layers("phi", "Phi", "Phi"),
    layers("phi3", "Phi3", "Phi-3"),
    layers("cohere", "Cohere", "Command-R"),
    layers("cohere2", "Cohere2", "Command-R7B"),
    layers("granite", "Granite", "Granite"),
    layers("smollm3", "SmolLM3", "SmolLM3"),
    layers("mixtral", "Mixtral", "Mixtral"),
    layers("granitemoe", "GraniteMoe", "GraniteMoE"),
    layers("qwen2_moe", "Qwen2Moe", "Qwen2MoE"),
    layers("qwen3_moe", "Qwen3Moe", "Qwen3MoE"),
    layers("olmoe", "Olmoe", "OLMoE"),
    layers("stablelm", "StableLm", "StableLM"),
    layers("starcoder2", "Starcoder2", "StarCoder2"),
    layers("nemotron", "Nemotron", "Nemotron"),
    layers("glm", "Glm", "GLM"),
}};

// The family's module in transformers.
std::string underscored(std::string_view model_type) {
  std::string name(model_type);
  std::ranges::replace(name, '-', '_');
  return name;
}

// What follows "import": names on one line, or in brackets if they would be too many for it.
std::string imported(const LoaderRow& row) {
  std::vector<std::string> names;
  for (const AutoClass& each : row.classes) {
    names.push_back(fmt::format("{}{}", row.family, each.suffix));
  }
  std::ranges::sort(names, [](const std::string& one, const std::string& other) {
    return std::lexicographical_compare(
        one.begin(), one.end(), other.begin(), other.end(),
        [](unsigned char a, unsigned char b) { return std::tolower(a) < std::tolower(b); });
  });
  return names.size() < 4 ? fmt::format("{}", fmt::join(names, ", "))
                          : fmt::format("(\n    {},\n)", fmt::join(names, ",\n    "));
}

// What the classes of a file inherit before those of transformers, which it defines itself.
std::string grouped_class(const LoaderRow& row) {
  return fmt::format(
      R"(from transformers.models.{module}.modeling_{module} import {family}{attention}

from .regroup_heads import GroupedHeads, other_classes


class Grouped{family}(GroupedHeads):
    attention_class, packing, projections = {family}{attention}, "{packing}", ({projections})
{role})",
      fmt::arg("module", underscored(row.model_type)), fmt::arg("family", row.family),
      fmt::arg("attention", row.attention), fmt::arg("packing", row.packing),
      fmt::arg("projections", row.projections), fmt::arg("role", row.role));
}

std::string class_of(const LoaderRow& row, const AutoClass& entry) {
  const std::string name = fmt::format("{}{}", row.family, entry.suffix);
  const bool of_layers = row.shared == kLayersFile;
  const std::string base = !of_layers                   ? fmt::format("Grouped{}", row.family)
                           : entry.name == "AutoConfig" ? "ConfigOfLayers"
                                                        : "HeadsOfLayers";
  const std::string body =
      of_layers && entry.name != "AutoConfig"
          ? fmt::format("config_class = Regroup{}{}", row.family, row.classes.front().suffix)
          : "pass";
  return fmt::format("\n\nclass Regroup{0}({1}, {0}):\n    {2}\n", name, base, body);
}

// The file's text. It imports transformers and regroup_heads.py only, so that each result stands
// alone.
std::string loader_text(const LoaderRow& row) {
  const bool of_layers = row.shared == kLayersFile;
  std::string text = fmt::format(
      R"(# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""{} with {}. Written by regroup; see {}."""

from transformers import {}
{})",
      row.title,
      of_layers ? "a number of key and value heads for each layer" : "grouped key and value heads",
      row.shared, imported(row),
      of_layers ? "\nfrom .regroup_layers import ConfigOfLayers, HeadsOfLayers, other_classes\n"
                : grouped_class(row));
  for (const AutoClass& each : row.classes) {
    text += class_of(row, each);
  }
  const std::string made =
      of_layers ? fmt::format(R"("{0}", Regroup{0}{1})", row.family, row.classes[1].suffix)
                : fmt::format(R"(Grouped{0}, "{0}")", row.family);
  return text + fmt::format("\n\n__getattr__ = other_classes(__name__, {})\n", made);
}

// Names and texts.
std::vector<std::pair<std::string, std::string>> made_loader_files() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const LoaderRow& row : loader_rows()) {
    if (!row.title.empty()) {
      files.emplace_back(module_of(row) + ".py", loader_text(row));
    }
  }
  return files;
}

}  // namespace

std::span<const LoaderRow> loader_rows() { return kLoaderRows; }

const AutoClass* made_class(const LoaderRow& row, std::string_view name) {
  const bool of_family = name.starts_with(fmt::format("Regroup{}", row.family)) ||
                         (row.alibi && name.starts_with(fmt::format("RegroupAlibi{}", row.family)));
  const auto* const found = std::ranges::find_if(
      kMadeClasses, [&](const AutoClass& each) { return name.ends_with(each.suffix); });
  return of_family && !row.shared.empty() && found != kMadeClasses.end() ? found : nullptr;
}

std::string module_of(const LoaderRow& row) {
  return "modeling_regroup_" + underscored(row.model_type);
}

std::span<const LoaderFile> loader_files() {
  static const auto kMade = made_loader_files();
  static const auto kAll = [] {
    const auto embedded = embedded_loader_files();
    std::vector<LoaderFile> all(embedded.begin(), embedded.end());
    for (const auto& [name, text] : kMade) {
      all.push_back({name, text});
    }
    return all;
  }();
  return kAll;
}

}  // namespace regroup

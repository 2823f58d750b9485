#include "formats/families/loader_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace regroup {
namespace {

// In the order of the file's classes.
constexpr std::array<AutoClass, 2> kCausal{
    {{"AutoModel", "Model"}, {"AutoModelForCausalLM", "ForCausalLM"}}};
constexpr std::array<AutoClass, 2> kGpt2{
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

const std::array<LoaderRow, 28> kRows{{
    {"gpt2", "GPT2", kGpt2, "GPT-2", "Attention", "concatenated", R"("c_attn",)"},
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
}};

// The family's module in transformers.
std::string underscored(std::string_view model_type) {
  std::string name(model_type);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// What follows "import": names on one line, or in brackets if they would be too many for it.
std::string imported(const LoaderRow& row) {
  std::vector<std::string> names;
  for (const AutoClass& each : row.classes) {
    names.push_back(fmt::format("{}{}", row.family, each.suffix));
  }
  std::sort(names.begin(), names.end(), [](const std::string& one, const std::string& other) {
    return std::lexicographical_compare(
        one.begin(), one.end(), other.begin(), other.end(),
        [](unsigned char a, unsigned char b) { return std::tolower(a) < std::tolower(b); });
  });
  return names.size() < 4 ? fmt::format("{}", fmt::join(names, ", "))
                          : fmt::format("(\n    {},\n)", fmt::join(names, ",\n    "));
}

}  // namespace

std::span<const LoaderRow> loader_rows() { return kRows; }

std::string module_of(const LoaderRow& row) {
  return "modeling_regroup_" + underscored(row.model_type);
}

std::string loader_text(const LoaderRow& row) {
  std::string text = fmt::format(
      R"(# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""{title} with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import {imported}
from transformers.models.{module}.modeling_{module} import {family}{attention}

from .regroup_heads import GroupedHeads


class Grouped{family}(GroupedHeads):
    attention_class, packing, projections = {family}{attention}, "{packing}", ({projections})
{role})",
      fmt::arg("title", row.title), fmt::arg("imported", imported(row)),
      fmt::arg("module", underscored(row.model_type)), fmt::arg("family", row.family),
      fmt::arg("attention", row.attention), fmt::arg("packing", row.packing),
      fmt::arg("projections", row.projections), fmt::arg("role", row.role));
  for (const AutoClass& each : row.classes) {
    text += fmt::format("\n\nclass Regroup{0}{1}(Grouped{0}, {0}{1}):\n    pass\n", row.family,
                        each.suffix);
  }
  return text;
}

}  // namespace regroup

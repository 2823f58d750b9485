#include "tokens/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/gguf/gguf.h"
#include "formats/vocabulary/gguf_vocabulary.h"
#include "formats/vocabulary/vocabulary.h"
#include "tokens/json_tokenizer.h"

namespace regroup {
namespace {

// How text is split before BPE, by llama.cpp's names (tokenizer.ggml.pre). Steps are
// tokenizer.json's.
struct PreTokenization {
  std::string_view name, steps;
  std::string_view normalizer = "null";
  bool whole_words = false;  // words of the vocabulary are not merged
  bool adds_bos = false;     // if the file does not say
};

constexpr std::string_view kGpt2 =
    R"([{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}])";
constexpr std::string_view kDigitsFirst =
    R"([{"type":"Digits","individual_digits":true},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}])";
constexpr std::string_view kLlama3 =
    R"([{"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":)"
    R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+)"
    R"([\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}])";
constexpr std::string_view kQwen2 =
    R"([{"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":)"
    R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+)"
    R"([\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}])";
constexpr std::array<PreTokenization, 5> kPreTokenizations{{
    {"gpt-2", kGpt2},
    {"starcoder", kDigitsFirst},
    {"smollm", kDigitsFirst},
    {"llama-bpe", kLlama3, "null", true, true},
    {"qwen2", kQwen2, R"({"type":"NFC"})"},
}};

const PreTokenization& pre_tokenization_of(const GgufMetadata& metadata) {
  const auto model = metadata.text("tokenizer.ggml.model");
  if (model != "gpt2") {
    throw_bad_input(
        "{}: tokenizer.ggml.model is {}; of GGUF files regroup reads \"gpt2\" (byte-level BPE). "
        "Give "
        "the original model's tokenizer.json or tokenizer.model",
        metadata.where(), model ? printable(*model, 60) : "missing");
  }
  const std::string_view name = metadata.text("tokenizer.ggml.pre").value_or("missing");
  const auto* const found =
      std::find_if(kPreTokenizations.begin(), kPreTokenizations.end(),
                   [&](const PreTokenization& each) { return each.name == name; });
  if (found == kPreTokenizations.end()) {
    throw_bad_input(
        "{}: tokenizer.ggml.pre is {}; known are gpt-2, starcoder, smollm, llama-bpe and qwen2. "
        "Give "
        "the original model's tokenizer.json",
        metadata.where(), printable(name, 60));
  }
  return *found;
}

std::vector<std::string_view> strings_of(const GgufMetadata& metadata, std::string_view key) {
  const auto array = metadata.array(key);
  auto strings = array ? array->strings() : std::nullopt;
  if (!strings) {
    throw_bad_input("{}: {} is no list of strings", metadata.where(), key);
  }
  return *std::move(strings);
}

// Control tokens become special added tokens, user-defined ones ordinary added tokens.
nlohmann::json added_tokens_of(const GgufMetadata& metadata,
                               const std::vector<std::string_view>& tokens) {
  const auto array = metadata.array("tokenizer.ggml.token_type");
  const auto types = array ? array->integers() : std::nullopt;
  if (!types || types->size() != tokens.size()) {
    throw_bad_input("{}: tokenizer.ggml.token_type does not list a type for each of {} tokens",
                    metadata.where(), tokens.size());
  }
  nlohmann::json added = nlohmann::json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const auto type = static_cast<TokenType>(types->at(id));
    if (type == TokenType::kControl || type == TokenType::kUserDefined) {
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"special", type == TokenType::kControl},
                       {"normalized", false},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false}});
    }
  }
  return added;
}

}  // namespace

nlohmann::json tokenizer_json_of(const GgufMetadata& metadata) {
  const PreTokenization& pre = pre_tokenization_of(metadata);
  const std::vector<std::string_view> tokens = strings_of(metadata, "tokenizer.ggml.tokens");
  nlohmann::json vocabulary = nlohmann::json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!vocabulary.emplace(tokens[id], id).second) {
      throw_bad_input("{}: tokenizer.ggml.tokens lists {} twice", metadata.where(),
                      printable(tokens[id], 60));
    }
  }
  return {{"added_tokens", added_tokens_of(metadata, tokens)},
          {"normalizer", nlohmann::json::parse(pre.normalizer)},
          {"pre_tokenizer",
           {{"type", "Sequence"}, {"pretokenizers", nlohmann::json::parse(pre.steps)}}},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", pre.whole_words},
            {"vocab", std::move(vocabulary)},
            {"merges", strings_of(metadata, "tokenizer.ggml.merges")}}}};
}

std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::filesystem::path& file) {
  const GgufMetadata metadata = open_gguf(file).metadata;
  auto tokenizer = make_json_tokenizer(tokenizer_json_of(metadata), metadata.where());
  DocumentEnds ends;
  for (const auto& [role, id] : special_ids_in(metadata)) {
    if (role == "bos" || role == "eos") {
      (role == "bos" ? ends.bos : ends.eos) = id;
    }
  }
  const bool adds_bos = pre_tokenization_of(metadata).adds_bos;
  ends.add_bos = metadata.flag("tokenizer.ggml.add_bos_token").value_or(adds_bos) && ends.bos;
  ends.add_eos = metadata.flag("tokenizer.ggml.add_eos_token").value_or(true) && ends.eos;
  tokenizer->set_ends(ends);
  return tokenizer;
}

}  // namespace regroup

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {
namespace {

using Step = nlohmann::json;

Step split_at(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

// Bytes as characters; `words`: after a split into GPT-2's words.
Step bytes(bool words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", words}};
}

Step digits(bool individual) { return {{"type", "Digits"}, {"individual_digits", individual}}; }

// GPT-4's words. Llama 3, Qwen 2 and others differ in how many digits stay together.
Step words(const std::string& number) {
  return split_at(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + number +
                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

// The same, and a change from lower to upper case ends a word. `ending` follows a word.
Step cased_words(const std::string& ending, const std::string& number) {
  const std::string before = R"([^\r\n\p{L}\p{N}]?)", upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                    lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  return split_at(before + upper + "*" + lower + "+" + ending + "|" + before + upper + "+" + lower +
                  "*" + ending + "|" + number +
                  R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

Step gpt2() { return Step::array({bytes(true)}); }
Step starcoder() { return Step::array({digits(true), bytes(true)}); }
Step llama3() { return Step::array({words(R"(\p{N}{1,3})"), bytes(false)}); }
Step qwen2() { return Step::array({words(R"(\p{N})"), bytes(false)}); }
Step gpt4o() {
  return Step::array({cased_words("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", R"(\p{N}{1,3})"), bytes(false)});
}
Step tekken() { return Step::array({cased_words("", R"(\p{N})"), bytes(false)}); }
Step bloom() { return Step::array({split_at(R"( ?[^(\s|.,!?…。，、।۔،)]+)"), bytes(false)}); }
Step falcon() {
  return Step::array({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                      bytes(true),
                      digits(false),
                      split_at("[0-9][0-9][0-9]")});
}

constexpr const char* kHanAndHangul = "[一-龥ࠀ-一가-퟿]+";
// The letters of scripts with two cases.
constexpr const char* kCasedLetters =
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿ"
    "ᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨ"
    "K-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀"
    "-𐳲𑢠-𑣟𞤀-𞥃]+";

Step deepseek_llm() {
  return Step::array({split_at(R"([\r\n])"), split_at(R"(\s?)" + std::string(kCasedLetters)),
                      split_at(R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)"), split_at(R"(\s+$)"),
                      split_at(kHanAndHangul), digits(false), bytes(false)});
}
Step deepseek_coder() {
  return Step::array({split_at(R"([\r\n])"), split_at(R"(\s?\p{L}+)"), split_at(R"(\s?\p{P}+)"),
                      split_at(kHanAndHangul), digits(true), bytes(false)});
}
Step deepseek_v3() {
  return Step::array({split_at(R"(\p{N}{1,3})"), split_at("[一-龥぀-ゟ゠-ヿ]+"),
                      split_at(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                               R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
                               R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"),
                      bytes(false)});
}

// How llama.cpp splits text for a vocabulary that names no other way.
Step llama_cpp() {
  return Step::array({split_at(R"([\p{P}\$\+<=>\^~\|]+)"),
                      split_at(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
                               R"(|\s+(?!\S))"),
                      split_at(R"(\p{N}+)"), split_at("[0-9][0-9][0-9]"), bytes(false)});
}

constexpr auto kPreTokenizations = std::to_array<PreTokenization>({
    {.names = "gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
              "roberta-bpe gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling",
     .steps = gpt2},
    {.names = "olmo mpt modern-bert", .steps = gpt2, .composes = true},
    {.names = "starcoder smollm refact codeshell exaone minerva-7b", .steps = starcoder},
    {.names = "command-r", .steps = starcoder, .composes = true},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     .steps = llama3,
     .whole_words = true,
     .adds_bos = true},
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .steps = llama3},
    {.names = "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan", .steps = qwen2, .composes = true},
    {.names = "gpt-4o llama4 kanana2 minimax-m2", .steps = gpt4o},
    {.names = "tekken", .steps = tekken, .whole_words = true, .adds_bos = true},
    {.names = "bloom poro-chat gpt3-finnish", .steps = bloom},
    {.names = "falcon", .steps = falcon},
    {.names = "deepseek-llm", .steps = deepseek_llm},
    {.names = "deepseek-coder", .steps = deepseek_coder},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm", .steps = deepseek_v3},
    {.names = "default", .steps = llama_cpp},
});

// Finds llama.cpp's name for the way in which tokenizer.json splits text before BPE.

// The steps of a pre-tokenizer. Sequences are flattened one level deep; no tokenizer nests them.
std::vector<const SortedJson*> steps_of(const SortedJson& pre_tokenizer) {
  if (token_text(pre_tokenizer, "type") != "Sequence") {
    return {&pre_tokenizer};
  }
  std::vector<const SortedJson*> steps;
  const SortedJson& parts = member_of(pre_tokenizer, "pretokenizers");
  for (std::size_t i = 0; parts.is_array() && i < parts.size(); ++i) {
    steps.push_back(&parts[i]);
  }
  return steps;
}

// The regular expression that a Split step splits by; empty for other steps.
std::string pattern_of(const SortedJson& step) {
  return token_text(step, "type") == "Split" ? token_text(member_of(step, "pattern"), "Regex") : "";
}

// Whether two steps split alike.
bool are_alike(const SortedJson& step, const SortedJson& other) {
  const auto same = [&](const char* key) { return member_of(step, key) == member_of(other, key); };
  return same("type") && same("individual_digits") && pattern_of(step) == pattern_of(other);
}

bool are_alike(const std::vector<const SortedJson*>& steps, const SortedJson& others) {
  return std::equal(
      steps.begin(), steps.end(), others.begin(), others.end(),
      [](const SortedJson* step, const auto& other) { return are_alike(*step, other); });
}

// The first row of the table that splits so, preferably with the other settings of `tokenizer`.
std::string_view name_in_table(const std::vector<const SortedJson*>& steps,
                               const SortedJson& tokenizer) {
  const bool whole_words = member_of(member_of(tokenizer, "model"), "ignore_merges") == true;
  const bool composes = token_text(member_of(tokenizer, "normalizer"), "type") == "NFC";
  std::string_view name;
  int most = 0;
  for (const PreTokenization& each : kPreTokenizations) {
    const int alike = 1 + (each.whole_words == whole_words ? 2 : 0) + (each.composes == composes);
    if (alike > most && are_alike(steps, each.steps())) {
      most = alike;
      name = each.names.substr(0, each.names.find(' '));
    }
  }
  return name;
}

// BLOOM's punctuation class, in either of the spellings in use.
bool is_bloom_pattern(std::string_view pattern) {
  return pattern.starts_with(R"( ?[^(\s|[.,!?)") || pattern.starts_with(R"( ?[^(\s|.,!?)");
}

bool has_step(const std::vector<const SortedJson*>& steps, std::string_view type) {
  return std::ranges::any_of(
      steps, [&](const SortedJson* step) { return token_text(*step, "type") == type; });
}

// Printable bytes of Latin-1 are the character of the same number. The others get the characters
// from U+0100 on, in order.
std::array<std::string, 256> characters_of_bytes() {
  std::array<std::string, 256> characters;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    append_utf8(characters[byte], printable ? byte : next++);
  }
  return characters;
}

}  // namespace

bool is_listed(std::string_view name, std::string_view names) {
  return fmt::format(" {} ", names).find(fmt::format(" {} ", name)) != std::string::npos;
}

const PreTokenization* find_pre_tokenization(std::string_view stored) {
  const std::string_view wanted = stored.empty() ? "default" : stored;
  const auto* const found = std::ranges::find_if(
      kPreTokenizations,
      [&](const PreTokenization& each) { return is_listed(wanted, each.names); });
  return found == kPreTokenizations.end() ? nullptr : found;
}

std::string pre_tokenization_names() {
  std::string names;
  for (const PreTokenization& each : kPreTokenizations) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", each.names);
  }
  return names;
}

std::string pre_tokenizer_name(const SortedJson& tokenizer) {
  const std::vector<const SortedJson*> steps = steps_of(member_of(tokenizer, "pre_tokenizer"));
  if (steps.empty() || !has_step(steps, "ByteLevel")) {
    return "";
  }
  if (const std::string_view name = name_in_table(steps, tokenizer); !name.empty()) {
    return std::string(name);
  }
  // Other spellings of the same.
  if (steps.size() == 1) {
    return "gpt-2";
  }
  if (has_step(steps, "Punctuation") && has_step(steps, "Digits")) {
    return "falcon";
  }
  if (steps.size() == 2 && token_text(*steps.front(), "type") == "Digits") {
    return "starcoder";
  }
  return steps.size() == 2 && is_bloom_pattern(pattern_of(*steps.front())) ? "bloom" : "";
}

void append_byte_level(std::string_view text, std::string& result) {
  static const std::array<std::string, 256> characters = characters_of_bytes();
  for (const char byte : text) {
    result += characters[static_cast<unsigned char>(byte)];
  }
}

std::string byte_level_text(std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  append_byte_level(text, result);
  return result;
}

}  // namespace regroup

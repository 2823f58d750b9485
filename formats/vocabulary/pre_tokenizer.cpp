// Finds llama.cpp's name for the way in which tokenizer.json splits text before BPE.
#include <array>
#include <vector>

#include "formats/vocabulary/vocabulary_builder.h"

namespace regroup {
namespace {

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

// Llama 3 and Qwen 2 split the same way, except for how many digits stay together.
std::string words_and_digits(std::string_view digits) {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + std::string(digits) +
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

// BLOOM's punctuation class, in either of the spellings in use.
bool is_bloom_pattern(std::string_view pattern) {
  return pattern.starts_with(R"( ?[^(\s|[.,!?)") || pattern.starts_with(R"( ?[^(\s|.,!?)");
}

bool has_step(const std::vector<const SortedJson*>& steps, std::string_view type) {
  for (const SortedJson* step : steps) {
    if (token_text(*step, "type") == type) {
      return true;
    }
  }
  return false;
}

std::string name_of_pattern(const std::string& pattern) {
  if (pattern == words_and_digits(R"(\p{N}{1,3})")) {
    return "llama-bpe";
  }
  if (pattern == words_and_digits(R"(\p{N})")) {
    return "qwen2";
  }
  return is_bloom_pattern(pattern) ? "bloom" : "";
}

}  // namespace

std::string pre_tokenizer_name(const SortedJson& pre_tokenizer) {
  const std::vector<const SortedJson*> steps = steps_of(pre_tokenizer);
  if (steps.empty() || !has_step(steps, "ByteLevel")) {
    return "";
  }
  if (steps.size() == 1) {
    return "gpt-2";
  }
  if (has_step(steps, "Punctuation") && has_step(steps, "Digits")) {
    return "falcon";
  }
  if (steps.size() == 2 && token_text(*steps.front(), "type") == "Digits") {
    return "starcoder";
  }
  return steps.size() == 2 ? name_of_pattern(pattern_of(*steps.front())) : "";
}

}  // namespace regroup

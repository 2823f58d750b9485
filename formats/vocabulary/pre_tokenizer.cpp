// Finds llama.cpp's name for the way in which tokenizer.json splits text before BPE.
#include <algorithm>
#include <vector>

#include "formats/vocabulary/pre_tokenizations.h"
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
  for (const PreTokenization& each : pre_tokenizations()) {
    const int alike = 1 + (each.whole_words == whole_words ? 2 : 0) + (each.composes == composes);
    if (alike > most && are_alike(steps, each.steps())) {
      most = alike;
      name = each.name;
    }
  }
  return name;
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

}  // namespace

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

}  // namespace regroup

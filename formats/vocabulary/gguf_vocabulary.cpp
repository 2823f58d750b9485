#include "formats/vocabulary/gguf_vocabulary.h"

#include <array>
#include <string_view>
#include <utility>

namespace regroup {
namespace {

// Roles of tokens and the keys of their ids. The format spells "seperator" this way.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kIds{{
    {"bos", "tokenizer.ggml.bos_token_id"},
    {"eos", "tokenizer.ggml.eos_token_id"},
    {"unk", "tokenizer.ggml.unknown_token_id"},
    {"sep", "tokenizer.ggml.seperator_token_id"},
    {"pad", "tokenizer.ggml.padding_token_id"},
    {"mask", "tokenizer.ggml.mask_token_id"},
    {"cls", "tokenizer.ggml.cls_token_id"},
}};

void set_flag(GgufMetadata& metadata, std::string_view key, const std::optional<bool>& flag) {
  if (flag) {
    metadata.set_bool(key, *flag);
  }
}

}  // namespace

void set_vocabulary(GgufMetadata& metadata, const Vocabulary& vocabulary) {
  metadata.set_string("tokenizer.ggml.model", vocabulary.model);
  if (!vocabulary.present()) {
    return;
  }
  metadata.set_string("tokenizer.ggml.pre", vocabulary.pre);
  metadata.set_array("tokenizer.ggml.tokens", std::span<const std::string>(vocabulary.tokens));
  if (!vocabulary.scores.empty()) {
    metadata.set_array("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores));
  }
  metadata.set_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(vocabulary.types));
  if (!vocabulary.merges.empty()) {
    metadata.set_array("tokenizer.ggml.merges", std::span<const std::string>(vocabulary.merges));
  }
  for (const auto& [role, key] : kIds) {
    const auto id = vocabulary.special_ids.find(std::string(role));
    if (id != vocabulary.special_ids.end()) {
      metadata.set_u32(key, id->second);
    }
  }
  set_flag(metadata, "tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  set_flag(metadata, "tokenizer.ggml.add_eos_token", vocabulary.add_eos);
  set_flag(metadata, "tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix);
  if (!vocabulary.chat_template.empty()) {
    metadata.set_string("tokenizer.chat_template", vocabulary.chat_template);
  }
}

bool has_tokenizer(const GgufMetadata& metadata) {
  return metadata.contains("tokenizer.ggml.tokens");
}

std::map<std::string, std::int64_t> special_ids_in(const GgufMetadata& metadata) {
  std::map<std::string, std::int64_t> ids;
  for (const auto& [role, key] : kIds) {
    if (const auto id = metadata.count(key)) {
      ids.emplace(role, *id);
    }
  }
  return ids;
}

}  // namespace regroup

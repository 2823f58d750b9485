#include "formats/vocabulary/vocabulary_builder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"

namespace regroup {
namespace {

// The scores of placeholder tokens, and of tokens added to a SentencePiece model.
constexpr float kPlaceholderScore = -10000.0F;
constexpr float kAddedScore = -1000.0F;

constexpr std::uint64_t kMaxTokenizerBytes = 256U << 20;

// Replaces SentencePiece's mark for a space by a space.
std::string with_plain_spaces(std::string_view text) {
  constexpr std::string_view kMark = "\u2581";
  std::string plain;
  while (!text.empty()) {
    const bool mark = text.starts_with(kMark);
    plain += mark ? ' ' : text.front();
    text.remove_prefix(mark ? kMark.size() : 1);
  }
  return plain;
}

}  // namespace

SortedJson read_json_if_there(const std::filesystem::path& directory, const std::string& name) {
  const std::filesystem::path file = directory / name;
  if (!path_exists(file)) {
    return nullptr;
  }
  return parse_sorted_json_object(read_text(file, kMaxTokenizerBytes), printable(file.string(), 0));
}

const SortedJson& member_of(const SortedJson& object, const std::string& key) {
  static const SortedJson kNull;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : kNull;
}

std::string token_text(const SortedJson& object, const std::string& key) {
  const SortedJson& member = member_of(object, key);
  const SortedJson& text = member.is_object() ? member_of(member, "content") : member;
  return text.is_string() ? text.get<std::string>() : "";
}

VocabularyBuilder::VocabularyBuilder(std::int64_t rows, bool scored) : rows_(rows) {
  const auto count = static_cast<std::size_t>(rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    vocabulary_.tokens.push_back(fmt::format("[PAD{}]", i));
  }
  vocabulary_.types.assign(count, static_cast<std::int32_t>(TokenType::kUnused));
  vocabulary_.scores.assign(scored ? count : 0, kPlaceholderScore);
  taken_.assign(count, false);
}

void VocabularyBuilder::place(std::int64_t id, std::string text, TokenType type, float score) {
  const auto at = static_cast<std::size_t>(id);
  if (taken_[at]) {
    const auto old = places_.find(vocabulary_.tokens[at]);
    if (old != places_.end() && old->second == at) {
      places_.erase(old);
    }
  }
  taken_[at] = true;
  places_.try_emplace(text, static_cast<std::uint32_t>(id));
  vocabulary_.tokens[at] = std::move(text);
  vocabulary_.types[at] = static_cast<std::int32_t>(type);
  if (!vocabulary_.scores.empty()) {
    vocabulary_.scores[at] = score;
  }
}

void VocabularyBuilder::put(std::int64_t id, std::string text, TokenType type, float score,
                            std::string_view where) {
  if (id < 0) {
    throw_bad_input("{}: token {} has the id {}", where, printable(text, 60), id);
  }
  if (id >= rows_) {
    left_out_.insert(id);
    return;
  }
  if (taken_[static_cast<std::size_t>(id)]) {
    throw_bad_input("{}: tokens {} and {} have the same id {}", where,
                    printable(vocabulary_.tokens[static_cast<std::size_t>(id)], 60),
                    printable(text, 60), id);
  }
  place(id, type == TokenType::kUserDefined ? with_plain_spaces(text) : std::move(text), type,
        score);
}

void VocabularyBuilder::put_added(std::int64_t id, std::string text, bool special,
                                  std::string_view where) {
  if (id < 0) {
    throw_bad_input("{}: added token {} has the id {}", where, printable(text, 60), id);
  }
  if (id >= rows_) {
    left_out_.insert(id);
    return;
  }
  const auto at = static_cast<std::size_t>(id);
  const auto type = static_cast<TokenType>(vocabulary_.types[at]);
  const bool known = taken_[at] && vocabulary_.tokens[at] == text;
  if (known &&
      (type == TokenType::kUnknown || type == TokenType::kControl || type == TokenType::kByte)) {
    return;
  }
  place(id, special ? std::move(text) : with_plain_spaces(text),
        special ? TokenType::kControl : TokenType::kUserDefined, kAddedScore);
}

std::optional<std::uint32_t> VocabularyBuilder::find(const std::string& text) const {
  const auto found = places_.find(text);
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

void VocabularyBuilder::set_type(std::uint32_t id, TokenType type) {
  vocabulary_.types[id] = static_cast<std::int32_t>(type);
}

Vocabulary VocabularyBuilder::finish() {
  if (!left_out_.empty()) {
    vocabulary_.notes.push_back(
        fmt::format("{} tokens beyond the {} rows of the token embedding are left out",
                    left_out_.size(), rows_));
  }
  return std::move(vocabulary_);
}

}  // namespace regroup

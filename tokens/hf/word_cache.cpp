#include "tokens/hf/word_cache.h"

#include <functional>

namespace regroup {
namespace {

constexpr std::size_t kSlots = 1U << 17;  // a power of two
constexpr std::size_t kMaxWords = kSlots * 3 / 4;
constexpr std::size_t kMaxText = 8U << 20;
constexpr std::size_t kMaxIds = 1U << 20;
constexpr std::size_t kLongestWord = 256;

std::size_t hash_of(std::string_view word) { return std::hash<std::string_view>()(word); }

}  // namespace

WordCache::WordCache() : slots_(kSlots) {}

std::size_t WordCache::place_of(std::string_view word, std::size_t hash) const {
  for (std::size_t place = hash & (kSlots - 1);; place = (place + 1) & (kSlots - 1)) {
    const Slot& slot = slots_[place];
    if (slot.word_size == 0 ||
        (slot.hash == static_cast<std::uint32_t>(hash >> 32) &&
         std::string_view(text_).substr(slot.word_begin, slot.word_size) == word)) {
      return place;
    }
  }
}

std::optional<std::span<const std::uint32_t>> WordCache::find(std::string_view word) const {
  const Slot& slot = slots_[place_of(word, hash_of(word))];
  if (slot.word_size == 0) {
    return std::nullopt;
  }
  return std::span(ids_).subspan(slot.ids_begin, slot.ids_count);
}

void WordCache::put(std::string_view word, std::span<const std::uint32_t> ids) {
  if (word.empty() || word.size() > kLongestWord) {
    return;
  }
  if (words_ == kMaxWords || text_.size() + word.size() > kMaxText ||
      ids_.size() + ids.size() > kMaxIds) {
    slots_.assign(kSlots, {});
    words_ = 0;
    text_.clear();
    ids_.clear();
  }
  const std::size_t hash = hash_of(word);
  slots_[place_of(word, hash)] = {
      static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(text_.size()),
      static_cast<std::uint32_t>(word.size()), static_cast<std::uint32_t>(ids_.size()),
      static_cast<std::uint32_t>(ids.size())};
  text_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++words_;
}

}  // namespace regroup

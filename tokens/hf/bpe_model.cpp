#include "tokens/hf/bpe_model.h"

#include <algorithm>
#include <queue>
#include <random>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "tokens/hf/token_model.h"
#include "tokens/hf/unicode.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxWords = 98'304;  // what a NameTable of 2^17 slots has room for
constexpr std::size_t kMaxText = 8U << 20;
constexpr std::size_t kMaxIds = 1U << 20;
constexpr std::size_t kLongestWord = 256;

// Byte-pair encoding: a word's characters, merged pair by pair, the best pair first.

constexpr std::uint32_t kNoSymbol = ~std::uint32_t{0};
constexpr std::size_t kMaxMerges = 4U << 20;

// A token of a word that is being merged; a doubly linked list.
struct Symbol {
  std::uint32_t id = 0;
  std::uint32_t before = kNoSymbol, after = kNoSymbol;
  bool gone = false;  // merged into the one before
};

// A merge that was possible when it was put into the queue. The best one has the lowest rank, and
// of equal ones the leftmost.
struct Candidate {
  std::uint32_t rank = 0, place = 0, id = 0;
  bool operator<(const Candidate& other) const {
    return std::pair(rank, place) > std::pair(other.rank, other.place);
  }
};

std::uint64_t packed(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;
}

// Where the first space mark follows another character, or npos.
std::size_t inner_mark_of(std::string_view token) {
  std::size_t at = 0;
  while (token.substr(at).starts_with(kSpaceOfPieces)) {
    at += kSpaceOfPieces.size();
  }
  return token.find(kSpaceOfPieces, at);
}

struct BpeSettings {
  std::optional<std::string> unknown, prefix, suffix;
  bool fuse_unknown = false, byte_fallback = false, whole_words = false;
};

class BpeModel : public TokenModel {
 public:
  BpeModel(const JsonFields& fields, BpeSettings settings, const TokenTexts& special)
      : TokenModel(read_vocabulary_ids(fields)),
        settings_(std::move(settings)),
        where_(fields.where()) {
    bytes_ = settings_.byte_fallback ? byte_ids() : ByteIds{};
    if (settings_.unknown && !ids_.contains(*settings_.unknown)) {
      fields.refuse("unk_token", "a token of the vocabulary");
    }
    if (settings_.whole_words) {
      special_ = special;
    }
    read_merges(fields);
  }

  std::size_t encode(std::string_view word, std::vector<std::uint32_t>& ids) const override {
    const auto whole = settings_.whole_words ? id_of(word) : std::nullopt;
    if (whole && !special_.contains(word)) {
      ids.push_back(*whole);
      return 0;
    }
    Work& work = Work::of_thread();
    work.step(word.size(), "BPE");
    work.check_memory(word.size() * (sizeof(Symbol) + 2 * sizeof(Candidate)));
    const std::size_t begin = ids.size();
    const std::size_t left_out = append_characters(word, ids);
    merge(ids, begin);
    return left_out;
  }

  // Where no merge joins a mark to what precedes it, the text between marks is merged by itself.
  std::size_t first_unit(std::string_view word) const override {
    return splits_at_marks_ ? std::min(inner_mark_of(word), word.size()) : word.size();
  }

 private:
  void read_merges(const JsonFields& fields) {
    const nlohmann::json& merges = fields.at("merges");
    if (!merges.is_array() || merges.size() > kMaxMerges) {
      fields.refuse("merges", "a list of at most 4,194,304 pairs");
    }
    splits_at_marks_ = !settings_.whole_words && !settings_.prefix && !settings_.suffix &&
                       ids_.contains(kSpaceOfPieces);
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const nlohmann::json& merge = merges[rank];
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        add_merge(fields, rank, merge[0].get_ref<const std::string&>(),
                  merge[1].get_ref<const std::string&>());
        continue;
      }
      const std::string text = merge.is_string() ? merge.get<std::string>() : "";
      const std::size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        throw_bad_input("{}: {}[{}] is not a pair of tokens", where_, fields.name_of("merges"),
                        rank);
      }
      const std::string_view pair = text;
      add_merge(fields, rank, pair.substr(0, space), pair.substr(space + 1));
    }
  }

  void add_merge(const JsonFields& fields, std::size_t rank, std::string_view left,
                 std::string_view right) {
    const std::size_t prefix = settings_.prefix ? settings_.prefix->size() : 0;
    const auto refuse = [&](std::string_view token) {
      throw_bad_input("{}: {}[{}] has {}, which is no token of the vocabulary", where_,
                      fields.name_of("merges"), rank, printable(token, 60));
    };
    const auto first = id_of(left), second = id_of(right);
    if (!first || !second) {
      refuse(first ? right : left);
    }
    if (prefix > 0 && !right.starts_with(*settings_.prefix)) {
      throw_bad_input("{}: {}[{}] continues a word without continuing_subword_prefix", where_,
                      fields.name_of("merges"), rank);
    }
    const std::string whole = std::string(left) + std::string(right.substr(prefix));
    const auto result = id_of(whole);
    if (!result) {
      refuse(whole);
    }
    splits_at_marks_ = splits_at_marks_ && inner_mark_of(whole) == std::string_view::npos;
    merges_.set(packed(*first, *second), packed(static_cast<std::uint32_t>(rank), *result));
  }

  // The ids of the characters. Unknown ones become bytes or the unknown token, or are left out and
  // counted if there is none.
  std::size_t append_characters(std::string_view word, std::vector<std::uint32_t>& ids) const {
    std::string spelled;
    std::size_t left_out = 0;
    bool unknown = false;  // an unknown token is pending
    const auto put_unknown = [&] {
      if (std::exchange(unknown, false)) {
        ids.push_back(*id_of(*settings_.unknown));
      }
    };
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t begin = at;
      next_character(word, at);
      const std::string_view character = word.substr(begin, at - begin);
      spelled = begin > 0 && settings_.prefix ? *settings_.prefix : "";
      spelled += character;
      spelled += at == word.size() && settings_.suffix ? *settings_.suffix : "";
      if (const auto found = id_of(spelled)) {
        put_unknown();
        ids.push_back(*found);
      } else if (settings_.byte_fallback && append_byte_ids(bytes_, spelled, ids)) {
        continue;
      } else if (!settings_.unknown) {
        ++left_out;
      } else {
        if (!settings_.fuse_unknown) {
          put_unknown();
        }
        unknown = true;
      }
    }
    put_unknown();
    return left_out;
  }

  // Merges the ids from `begin` on in O(n log n). A candidate whose pair has changed is still taken
  // if the new pair merges to the same token, as in the reference.
  void merge(std::vector<std::uint32_t>& ids, std::size_t begin) const {
    const auto count = static_cast<std::uint32_t>(ids.size() - begin);
    if (count < 2) {
      return;
    }
    std::vector<Symbol> symbols(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      symbols[i] = {ids[begin + i], i == 0 ? kNoSymbol : i - 1, i + 1 == count ? kNoSymbol : i + 1};
    }
    std::priority_queue<Candidate> queue;
    for (std::uint32_t i = 0; i + 1 < count; ++i) {
      offer(symbols, i, queue);
    }
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol& left = symbols[best.place];
      if (left.gone || left.after == kNoSymbol) {
        continue;
      }
      Symbol& right = symbols[left.after];
      const std::uint64_t found = merges_.find(packed(left.id, right.id));
      if (found == NumberTable::kNone || static_cast<std::uint32_t>(found) != best.id) {
        continue;
      }
      left.id = best.id;
      right.gone = true;
      left.after = right.after;
      if (left.after != kNoSymbol) {
        symbols[left.after].before = best.place;
        offer(symbols, best.place, queue);
      }
      if (left.before != kNoSymbol) {
        offer(symbols, left.before, queue);
      }
    }
    ids.resize(begin);
    for (std::uint32_t i = 0; i != kNoSymbol; i = symbols[i].after) {
      ids.push_back(symbols[i].id);
    }
  }

  void offer(const std::vector<Symbol>& symbols, std::uint32_t place,
             std::priority_queue<Candidate>& queue) const {
    const std::uint64_t found =
        merges_.find(packed(symbols[place].id, symbols[symbols[place].after].id));
    if (found != NumberTable::kNone) {
      queue.push(
          {static_cast<std::uint32_t>(found >> 32), place, static_cast<std::uint32_t>(found)});
    }
  }

  BpeSettings settings_;
  std::string where_;
  TokenTexts special_;
  ByteIds bytes_;
  NumberTable merges_;  // from two ids to the merge's rank and the new id
  bool splits_at_marks_ = false;
};

}  // namespace

NumberTable::NumberTable() : slots_(16, {kNone, kNone}), mask_(15) {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device() | 1;
  }();
  seed_ = seed;
}

void NumberTable::set(std::uint64_t key, std::uint64_t value) {
  if (2 * size_ >= slots_.size()) {
    grow();
  }
  std::size_t place = place_of(key);
  while (slots_[place].first != kNone && slots_[place].first != key) {
    place = (place + 1) & mask_;
  }
  size_ += slots_[place].first == kNone ? 1 : 0;
  slots_[place] = {key, value};
}

void NumberTable::grow() {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> old(2 * slots_.size(), {kNone, kNone});
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  size_ = 0;
  for (const auto& [key, value] : old) {
    if (key != kNone) {
      set(key, value);
    }
  }
}

WordCache::WordCache() { text_.reserve(kMaxText); }

std::optional<std::span<const std::uint32_t>> WordCache::find(std::string_view word) const {
  const auto place = words_.find(word);
  if (!place) {
    return std::nullopt;
  }
  return std::span(ids_).subspan(found_[*place].begin, found_[*place].count);
}

void WordCache::put(std::string_view word, std::span<const std::uint32_t> ids) {
  if (word.empty() || word.size() > kLongestWord) {
    return;
  }
  if (found_.size() == kMaxWords || text_.size() + word.size() > kMaxText ||
      ids_.size() + ids.size() > kMaxIds) {
    words_ = NameTable();
    text_.clear();
    found_.clear();
    ids_.clear();
  }
  const std::size_t begin = text_.size();
  text_ += word;
  words_.insert(std::string_view(text_).substr(begin), found_.size());
  found_.push_back(
      {static_cast<std::uint32_t>(ids_.size()), static_cast<std::uint32_t>(ids.size())});
  append(ids_, ids);
}

std::unique_ptr<TokenModel> read_bpe(const JsonFields& fields, const TokenTexts& special) {
  fields.allow({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const nlohmann::json& dropout = fields.at("dropout"); !dropout.is_null() && dropout != 0) {
    fields.refuse("dropout", "none (merges left out at random make other ids every time)");
  }
  const auto text = [&](const char* key) {
    const std::string found = fields.at(key).is_null() ? "" : fields.short_text(key);
    return found.empty() ? std::nullopt : std::optional(found);
  };
  BpeSettings settings{.unknown = fields.optional_text("unk_token"),
                       .prefix = text("continuing_subword_prefix"),
                       .suffix = text("end_of_word_suffix"),
                       .fuse_unknown = fields.flag("fuse_unk", false),
                       .byte_fallback = fields.flag("byte_fallback", false),
                       .whole_words = fields.flag("ignore_merges", false)};
  return std::make_unique<BpeModel>(fields, std::move(settings), special);
}

}  // namespace regroup

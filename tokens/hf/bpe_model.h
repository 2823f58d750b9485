// Tables for byte-pair encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/name_table.h"

namespace regroup {

/// A hash table from 64-bit keys to 64-bit values: compact, and safe against keys that are chosen
/// to collide.
class NumberTable {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  NumberTable();

  /// The value of `key`, or kNone.
  std::uint64_t find(std::uint64_t key) const {
    for (std::size_t place = place_of(key);; place = (place + 1) & mask_) {
      const auto& [found, value] = slots_[place];
      if (found == key || found == kNone) {
        return value;
      }
    }
  }

  /// Sets the value of `key`. Neither may be kNone.
  void set(std::uint64_t key, std::uint64_t value);

  std::size_t size() const { return size_; }

 private:
  std::size_t place_of(std::uint64_t key) const {
    std::uint64_t mixed = (key ^ seed_) * 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 32) * seed_;
    return static_cast<std::size_t>(mixed ^ mixed >> 29) & mask_;
  }
  void grow();

  std::vector<std::pair<std::uint64_t, std::uint64_t>> slots_;
  std::size_t mask_ = 0;
  std::size_t size_ = 0;
  std::uint64_t seed_ = 0;  // random and odd
};

/// Remembers the ids of words, because texts repeat words: up to about 100,000 in up to 16 MiB,
/// then it begins anew. Not thread-safe.
class WordCache {
 public:
  WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  /// The ids of `word`, valid until the next put(); nothing if it is not there.
  std::optional<std::span<const std::uint32_t>> find(std::string_view word) const;

  /// Adds a word that is not there. Long words are not kept.
  void put(std::string_view word, std::span<const std::uint32_t> ids);

 private:
  struct Ids {
    std::uint32_t begin = 0, count = 0;
  };

  NameTable words_;   // views of text_, with their places in found_
  std::string text_;  // reserved: it never moves
  std::vector<Ids> found_;
  std::vector<std::uint32_t> ids_;
};

}  // namespace regroup

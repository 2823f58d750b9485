// Remembers the ids of words, because texts repeat words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// Holds up to about 100,000 words in up to 16 MiB, then begins anew. Not thread-safe.
class WordCache {
 public:
  WordCache();

  /// The ids of `word`, valid until the next put(); nothing if it is not there.
  std::optional<std::span<const std::uint32_t>> find(std::string_view word) const;

  /// Adds a word that is not there. Long words are not kept.
  void put(std::string_view word, std::span<const std::uint32_t> ids);

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t word_begin = 0, word_size = 0;  // size 0: the slot is free
    std::uint32_t ids_begin = 0, ids_count = 0;
  };

  std::size_t place_of(std::string_view word, std::size_t hash) const;

  std::vector<Slot> slots_;
  std::size_t words_ = 0;
  std::string text_;
  std::vector<std::uint32_t> ids_;
};

}  // namespace regroup

// Reads an index of shards in one pass, without building a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

struct WeightIndex {
  struct Shard {
    std::string file;                       ///< as it is written
    std::vector<std::string_view> tensors;  ///< that stand in it, in the order of the index
  };
  std::vector<Shard> shards;
  std::deque<std::string> unescaped;  ///< names that the text does not hold as they are
};

/// The weight_map of an index; its names lie in `text`, which has to outlive it. `where` (a file
/// name) opens every error message. Throws kBadInput for anything but one JSON object whose
/// weight_map is an object of strings, and not empty; for duplicate keys in either; for nesting
/// deeper than 64.
WeightIndex parse_weight_index(std::string_view text, std::string_view where);

/// metadata.total_size, where it is a whole number. Reads no further than that.
std::optional<std::uint64_t> parse_total_size(std::string_view text);

}  // namespace regroup

// Reads an index of shards in one pass, without building a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace regroup {

struct WeightIndex {
  struct Shard {
    std::string file;         ///< as it is written
    std::size_t tensors = 0;  ///< that stand in it
  };
  std::vector<Shard> shards;
  std::unordered_map<std::string, std::size_t> shard_of;  ///< of each tensor
};

/// The weight_map of an index. `where` (a file name) opens every error message. Throws kBadInput
/// for anything but one JSON object whose weight_map is an object of strings, and not empty; for
/// duplicate keys in either; for nesting deeper than 64.
WeightIndex parse_weight_index(std::string_view text, std::string_view where);

/// metadata.total_size, where it is a whole number. Reads no further than that.
std::optional<std::uint64_t> parse_total_size(std::string_view text);

}  // namespace regroup

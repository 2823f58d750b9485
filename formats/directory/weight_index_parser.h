// Parses a shard index in one pass, without building a document.
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
    std::string file;                       ///< as spelled in the index
    std::vector<std::string_view> tensors;  ///< its tensors, in the order of the index
  };
  std::vector<Shard> shards;
  std::deque<std::string> unescaped;  ///< names that contain escapes in the text
};

/// Parses the weight_map of an index. Names are views of `text`, which must outlive the result.
/// Error messages begin with `where` (a file name). Throws kBadInput unless the text is one JSON
/// object whose weight_map is a non-empty object of strings, and for duplicate keys in either or
/// nesting deeper than 64.
WeightIndex parse_weight_index(std::string_view text, std::string_view where);

/// metadata.total_size if it is an integer. Stops reading there.
std::optional<std::uint64_t> parse_total_size(std::string_view text);

}  // namespace regroup

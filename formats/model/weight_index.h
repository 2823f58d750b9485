// The index of a checkpoint in several files: model.safetensors.index.json and
// pytorch_model.bin.index.json, which map tensors to shards.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensors/checkpoint.h"

namespace regroup {

struct WeightIndex {
  struct Shard {
    std::string file;                       ///< as spelled in the index
    std::vector<std::string_view> tensors;  ///< its tensors, in the order of the index
  };
  std::vector<Shard> shards;
  std::deque<std::string> unescaped;        ///< names that contain escapes in the text
  std::optional<std::uint64_t> total_size;  ///< in its metadata, if it is an integer from 0
};

/// Parses the weight_map of an index. Names are views of `text`, which must outlive the result.
/// Error messages begin with `where` (a file name). Throws kBadInput unless the text is one JSON
/// object whose weight_map is a non-empty object of strings, and for duplicate keys in either or
/// nesting deeper than 64.
WeightIndex parse_weight_index(std::string_view text, std::string_view where);

/// Opens all shards that an index names, in any container. Throws kBadInput if a shard is missing,
/// is outside the directory, or its tensors differ from the index.
std::vector<Checkpoint::Part> open_indexed_shards(const std::filesystem::path& index);

/// What an index says of a model.
struct IndexListing {
  std::optional<std::uint64_t> total_size;  ///< the bytes of all tensors
  std::vector<std::string> tensors;         ///< all that it lists, sorted
};

/// Reads an index without opening its shards. Throws kBadInput if it is malformed.
IndexListing listing_of_index(const std::filesystem::path& index);

}  // namespace regroup

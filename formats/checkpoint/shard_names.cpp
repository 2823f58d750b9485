#include "formats/checkpoint/shard_names.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace regroup {

std::string shard_name(std::size_t shard, std::size_t count, const WeightNames& names) {
  return count == 1
             ? fmt::format("{}{}", names.stem, names.extension)
             : fmt::format("{}-{:05}-of-{:05}{}", names.stem, shard + 1, count, names.extension);
}

std::string encode_index(std::span<const std::pair<std::string, std::size_t>> tensors,
                         std::size_t shard_count, std::uint64_t total_bytes,
                         const WeightNames& names) {
  nlohmann::json weight_map = nlohmann::json::object();  // sorted by name, as is usual
  for (const auto& [name, shard] : tensors) {
    weight_map[name] = shard_name(shard, shard_count, names);
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace regroup

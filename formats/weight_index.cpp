#include "formats/weight_index.h"

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "formats/container.h"
#include "formats/error.h"
#include "formats/printable.h"
#include "formats/weight_index_parser.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 256U << 20;

// A shard is a plain file name: an index must not reach out of its directory.
void check_shard_name(const std::string& shard, const std::string& where) {
  const std::filesystem::path name(shard);
  if (shard.empty() || shard.find('\0') != std::string::npos || name.is_absolute() ||
      name.filename() != name || shard == "." || shard == "..") {
    throw_bad_input("{}: weight_map names the shard \"{}\", a plain file name is needed", where,
                    printable(shard));
  }
}

// Throws naming a tensor that stands only in the index, or only in the shard.
void check_shard_tensors(const Checkpoint::Part& part, const WeightIndex& index, std::size_t shard,
                         const std::string& where) {
  const std::string file = printable(part.file.path().filename().string());
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : part.tensors) {
    const auto indexed = index.shard_of.find(tensor.name);
    if (indexed == index.shard_of.end() || indexed->second != shard) {
      throw_bad_input("{}: tensor {} stands in {} but not under it in weight_map", where,
                      printable(tensor.name), file);
    }
  }
  if (part.tensors.size() == index.shards[shard].tensors) {
    return;
  }
  for (const TensorInfo& tensor : part.tensors) {
    names.insert(tensor.name);
  }
  for (const auto& [name, place] : index.shard_of) {
    if (place == shard && !names.contains(name)) {
      throw_bad_input("{}: weight_map puts tensor {} in {}, which does not hold it", where,
                      printable(name), file);
    }
  }
}

}  // namespace

std::vector<Checkpoint::Part> open_indexed_shards(const std::filesystem::path& index) {
  const std::string where = printable(index.string(), 0);
  const WeightIndex found = parse_weight_index(read_text(index, kMaxIndexBytes), where);
  std::map<std::string_view, std::size_t> by_name;  // shards are opened in this order
  for (std::size_t i = 0; i < found.shards.size(); ++i) {
    check_shard_name(found.shards[i].file, where);
    by_name.emplace(found.shards[i].file, i);
  }
  std::vector<Checkpoint::Part> parts;
  for (const auto& [shard, number] : by_name) {
    const std::filesystem::path path = index.parent_path() / shard;
    if (!path_exists(path)) {
      throw_bad_input("{}: shard {} is missing ({} tensors)", where, printable(shard),
                      found.shards[number].tensors);
    }
    parts.push_back(open_weight_file(path));
    check_shard_tensors(parts.back(), found, number, where);
  }
  return parts;
}

std::optional<std::uint64_t> total_size_of_index(const std::filesystem::path& index) {
  return parse_total_size(read_text(index, kMaxIndexBytes));
}

std::string shard_name(std::size_t shard, std::size_t count, const WeightNames& names) {
  return count == 1
             ? fmt::format("{}{}", names.stem, names.extension)
             : fmt::format("{}-{:05}-of-{:05}{}", names.stem, shard + 1, count, names.extension);
}

std::string encode_index(std::span<const std::pair<std::string, std::size_t>> tensors,
                         std::size_t shard_count, std::uint64_t total_bytes,
                         const WeightNames& names) {
  nlohmann::json weight_map = nlohmann::json::object();  // sorted by name, as others write it
  for (const auto& [name, shard] : tensors) {
    weight_map[name] = shard_name(shard, shard_count, names);
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace regroup

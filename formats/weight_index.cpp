#include "formats/weight_index.h"

#include <map>
#include <set>

#include "formats/container.h"
#include "formats/error.h"
#include "formats/json.h"
#include "formats/printable.h"

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

using ShardsToTensors = std::map<std::string, std::set<std::string>>;

ShardsToTensors parse_weight_map(const nlohmann::json& index, const std::string& where) {
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    throw_bad_input("{}: weight_map {}, an object is needed", where,
                    weight_map == index.end() ? "is missing" : "is no object");
  }
  ShardsToTensors shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string()) {
      throw_bad_input("{}: weight_map entry {} is no string", where, printable(tensor));
    }
    const auto& name = shard.get_ref<const std::string&>();
    check_shard_name(name, where);
    shards[name].insert(tensor);
  }
  if (shards.empty()) {
    throw_bad_input("{}: weight_map is empty", where);
  }
  return shards;
}

void check_shard_tensors(const Checkpoint::Part& part, std::set<std::string> indexed,
                         const std::string& where) {
  const std::string file = printable(part.file.path().filename().string());
  for (const TensorInfo& tensor : part.tensors) {
    if (indexed.erase(tensor.name) == 0) {
      throw_bad_input("{}: tensor {} stands in {} but not under it in weight_map", where,
                      printable(tensor.name), file);
    }
  }
  if (!indexed.empty()) {
    throw_bad_input("{}: weight_map puts tensor {} in {}, which does not hold it", where,
                    printable(*indexed.begin()), file);
  }
}

}  // namespace

std::vector<Checkpoint::Part> open_indexed_shards(const std::filesystem::path& index) {
  const std::string where = printable(index.string(), 0);
  const nlohmann::json json = parse_sorted_json_object(read_text(index, kMaxIndexBytes), where);
  std::vector<Checkpoint::Part> parts;
  for (auto& [shard, tensors] : parse_weight_map(json, where)) {
    const std::filesystem::path path = index.parent_path() / shard;
    if (!path_exists(path)) {
      throw_bad_input("{}: shard {} is missing ({} tensors)", where, printable(shard),
                      tensors.size());
    }
    parts.push_back(open_weight_file(path));
    check_shard_tensors(parts.back(), std::move(tensors), where);
  }
  return parts;
}

std::optional<std::uint64_t> total_size_of_index(const std::filesystem::path& index) {
  using Event = nlohmann::json::parse_event_t;
  const auto all_but_names = [](int depth, Event event, const nlohmann::json& parsed) {
    return !(depth == 1 && event == Event::key && parsed == "weight_map");
  };
  const auto json = nlohmann::json::parse(read_text(index, kMaxIndexBytes), all_but_names, false);
  const auto metadata = json.find("metadata");
  const bool there = metadata != json.end() && metadata->is_object();
  const auto size = there ? metadata->find("total_size") : json.end();
  return there && size != metadata->end() && size->is_number_unsigned()
             ? std::optional(size->get<std::uint64_t>())
             : std::nullopt;
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

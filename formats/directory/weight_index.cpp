#include "formats/directory/weight_index.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include <nlohmann/json.hpp>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/directory/container.h"
#include "formats/directory/weight_index_parser.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 64U << 20;

// A shard must be a plain file name, so that an index cannot refer to files outside its directory.
void check_shard_name(const std::string& shard, const std::string& where) {
  const std::filesystem::path name(shard);
  if (shard.empty() || shard.find('\0') != std::string::npos || name.is_absolute() ||
      name.filename() != name || shard == "." || shard == "..") {
    throw_bad_input("{}: weight_map names the shard \"{}\", a plain file name is needed", where,
                    printable(shard));
  }
}

// Throws naming a tensor that is only in the index or only in the shard.
void check_shard_tensors(const Checkpoint::Part& part, const WeightIndex::Shard& shard,
                         const std::string& where) {
  const bool same_order = std::equal(
      part.tensors.begin(), part.tensors.end(), shard.tensors.begin(), shard.tensors.end(),
      [](const TensorInfo& tensor, std::string_view name) { return tensor.name == name; });
  if (same_order) {
    return;  // the usual case
  }
  const std::string file = printable(part.file.path().filename().string());
  const std::set<std::string_view> indexed(shard.tensors.begin(), shard.tensors.end());
  std::set<std::string_view> stored;
  for (const TensorInfo& tensor : part.tensors) {
    if (!indexed.contains(tensor.name)) {
      throw_bad_input("{}: tensor {} is in {}, but weight_map does not say so", where,
                      printable(tensor.name), file);
    }
    stored.insert(tensor.name);
  }
  for (const std::string_view name : shard.tensors) {
    if (!stored.contains(name)) {
      throw_bad_input("{}: weight_map says that tensor {} is in {}, but it is not", where,
                      printable(name), file);
    }
  }
}

Checkpoint::Part open_shard(const std::filesystem::path& directory, const WeightIndex& index,
                            std::size_t number, const std::string& where) {
  const WeightIndex::Shard& shard = index.shards[number];
  const std::filesystem::path path = directory / shard.file;
  if (!path_exists(path)) {
    throw_bad_input("{}: shard {} is missing ({} tensors)", where, printable(shard.file),
                    shard.tensors.size());
  }
  Checkpoint::Part part = open_weight_file(path);
  check_shard_tensors(part, shard, where);
  return part;
}

// Runs `work` in this thread and in `helpers` others.
void run_in_threads(std::size_t helpers, const std::function<void()>& work) {
  std::vector<std::jthread> threads;
  try {
    for (std::size_t i = 0; i < helpers; ++i) {
      threads.emplace_back(work);
    }
  } catch (const std::system_error&) {
    // Continue with fewer threads.
  }
  work();
}

// Opens parts 0 to count - 1, in several threads if there are many. Throws the error of the first
// failing part, as sequential opening would.
std::vector<Checkpoint::Part> open_in_parallel(
    std::size_t count, const std::function<Checkpoint::Part(std::size_t)>& open) {
  constexpr std::size_t kHeadersPerThread = 8;  // fewer are not worth starting one
  const std::size_t cores = std::max(std::thread::hardware_concurrency(), 1U);
  std::vector<std::optional<Checkpoint::Part>> opened(count);
  std::vector<std::exception_ptr> faults(count);
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;  // parts already assigned are still opened
  run_in_threads(std::min(cores, count / kHeadersPerThread + 1) - 1, [&] {
    while (!failed) {
      const std::size_t i = next++;
      if (i >= count) {
        return;
      }
      try {
        opened[i] = open(i);
      } catch (...) {
        faults[i] = std::current_exception();
        failed = true;
      }
    }
  });
  std::vector<Checkpoint::Part> parts;
  parts.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (faults[i]) {
      std::rethrow_exception(faults[i]);
    }
    parts.push_back(std::move(*opened[i]));
  }
  return parts;
}

}  // namespace

std::vector<Checkpoint::Part> open_indexed_shards(const std::filesystem::path& index) {
  const std::string where = printable(index.string(), 0);
  const std::string text = read_text(index, kMaxIndexBytes);
  const WeightIndex found = parse_weight_index(text, where);
  std::map<std::string_view, std::size_t> by_name;  // shards are opened in this order
  for (std::size_t i = 0; i < found.shards.size(); ++i) {
    check_shard_name(found.shards[i].file, where);
    by_name.emplace(found.shards[i].file, i);
  }
  std::vector<std::size_t> numbers;
  for (const auto& [shard, number] : by_name) {
    numbers.push_back(number);
  }
  return open_in_parallel(numbers.size(), [&](std::size_t i) {
    return open_shard(index.parent_path(), found, numbers[i], where);
  });
}

std::optional<std::uint64_t> total_size_of_index(const std::filesystem::path& index) {
  constexpr std::uint64_t kUsualPlace = 4096;  // total_size usually precedes the weight_map
  const File file = File::open(index);
  std::string first(std::min(file.size(), kUsualPlace), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  first.erase(first.find_last_not_of("0123456789") + 1);  // drop a number that may be cut off
  const auto found = parse_total_size(first);
  return found ? found : parse_total_size(read_text(index, kMaxIndexBytes));
}

}  // namespace regroup

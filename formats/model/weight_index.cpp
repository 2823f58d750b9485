#include "formats/model/weight_index.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/json_events.h"
#include "formats/base/name_table.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/model_directory.h"

namespace regroup {

namespace {

constexpr std::size_t kMaxIndexDepth = 64;
// Published indices have up to 207,000 tensors, in 200 shards.
constexpr std::size_t kMaxIndexedTensors = 500'000;
constexpr std::size_t kMaxShards = 10'000;

// The JSON type of a value, as messages call it.
std::string_view type_of(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull: return "null";
    case JsonKind::kBoolean: return "boolean";
    case JsonKind::kString: return "string";
    case JsonKind::kObject: return "object";
    case JsonKind::kArray: return "array";
    default: return "number";
  }
}

class WeightMapReader {
 public:
  WeightMapReader(std::string_view text, std::string_view where)
      : text_(text), where_(where), tensors_(std::min(text.size() / kUsualEntry, kEnough)) {}

  WeightIndex read() {
    JsonReader json(text_, fmt::format("{}:", where_));
    for (JsonEvent event = json.next(); event.kind != JsonKind::kEnd; event = json.next()) {
      if (event.kind == JsonKind::kKey) {
        take_key(event.text);
      } else if (event.kind == JsonKind::kObjectEnd || event.kind == JsonKind::kArrayEnd) {
        --depth_;
      } else {
        take_value(event);
      }
    }
    if (!members_.contains("weight_map")) {
      throw_bad_input("{}: weight_map is missing, an object is needed", where_);
    }
    if (found_.shards.empty()) {
      throw_bad_input("{}: weight_map is empty", where_);
    }
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kUsualEntry = 128;  // bytes
  static constexpr std::size_t kEnough = 1 << 16;  // entries

  bool in_weight_map() const { return depth_ == 2 && member_ == "weight_map"; }

  void take_key(std::string_view name) {
    if (depth_ == 1) {
      member_ = name;
      refuse_unless_new(members_.insert(member_).second, name);
    } else if (depth_ == 2) {
      inner_ = name;
    }
    if (in_weight_map()) {
      take_tensor(name);
    }
  }

  void take_value(const JsonEvent& value) {
    const bool object = value.kind == JsonKind::kObject;
    if (depth_ == 0 && !object) {
      throw_bad_input("{}: holds a JSON {}, an object is needed", where_, type_of(value.kind));
    }
    if (depth_ == 1 && member_ == "weight_map" && !object) {
      throw_bad_input("{}: weight_map is not an object", where_);
    }
    if (in_weight_map()) {
      if (value.kind != JsonKind::kString) {
        throw_bad_input("{}: weight_map entry {} is not a string", where_, printable(inner_));
      }
      shard(value.text);
    } else if (value.kind == JsonKind::kWholeNumber && depth_ == 2 && member_ == "metadata" &&
               inner_ == "total_size" && !found_.total_size) {
      found_.total_size = value.number;
    }
    if ((object || value.kind == JsonKind::kArray) && ++depth_ > kMaxIndexDepth) {
      throw_bad_input("{}: JSON nested deeper than {}", where_, kMaxIndexDepth);
    }
  }

  void shard(std::string_view file) {
    if (found_.shards.empty() || found_.shards[last_].file != file) {
      const auto [known, is_new] = number_of_.emplace(file, found_.shards.size());
      if (is_new && found_.shards.size() == kMaxShards) {
        throw_bad_input("{}: more than {} shards", where_, kMaxShards);
      }
      if (is_new) {
        found_.shards.push_back({std::string(file), {}});
      }
      last_ = known->second;
    }
    found_.shards[last_].tensors.push_back(tensor_);
  }

  // A name without escapes stays a view of the text.
  void take_tensor(std::string_view name) {
    if (count_++ == kMaxIndexedTensors) {
      throw_bad_input("{}: more than {} tensors", where_, kMaxIndexedTensors);
    }
    const bool in_text = !std::less<>()(name.data(), text_.data()) &&
                         !std::less<>()(text_.data() + text_.size(), name.data() + name.size());
    tensor_ = in_text ? name : found_.unescaped.emplace_back(name);
    refuse_unless_new(!tensors_.insert(tensor_, 0), name);
  }

  void refuse_unless_new(bool is_new, std::string_view key) const {
    if (!is_new) {
      throw_bad_input("{}: duplicate key \"{}\"", where_, printable(key));
    }
  }

  std::string_view text_, where_;
  WeightIndex found_;
  std::size_t depth_ = 0;
  std::string member_, inner_;  // the last key in the document, and in an object of it
  NameTable tensors_;
  std::size_t count_ = 0;
  std::string_view tensor_;                                 // the last one read
  std::unordered_map<std::string, std::size_t> number_of_;  // of each shard, by name
  std::unordered_set<std::string> members_;
  std::size_t last_ = 0;
};

}  // namespace

WeightIndex parse_weight_index(std::string_view text, std::string_view where) {
  return WeightMapReader(text, where).read();
}

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

// Throws naming a tensor that is in the shard and not there by the index. Indices list tensors that
// no shard has (buffers that a later version did not save); loaders pass over them, and a weight
// that the model needs is missed later.
void check_shard_tensors(const Checkpoint::Part& part, const WeightIndex::Shard& shard,
                         const std::set<std::string_view>& all, const std::string& where) {
  if (std::ranges::equal(part.tensors, shard.tensors, {}, &TensorInfo::name)) {
    return;  // the usual case
  }
  const std::string file = printable(part.file.path().filename().string());
  const std::set<std::string_view> indexed(shard.tensors.begin(), shard.tensors.end());
  for (const TensorInfo& tensor : part.tensors) {
    if (!indexed.contains(tensor.name)) {
      throw_bad_input("{}: tensor {} is in {}, {}", where, printable(tensor.name), file,
                      all.contains(tensor.name)
                          ? "but weight_map names another shard: loaders differ in which they take"
                          : "but weight_map does not say so");
    }
  }
}

Checkpoint::Part open_shard(const std::filesystem::path& directory, const WeightIndex::Shard& shard,
                            const std::set<std::string_view>& all, const std::string& where) {
  const std::filesystem::path path = directory / shard.file;
  if (!path_exists(path)) {
    throw_bad_input("{}: shard {} is missing ({} tensors)", where, printable(shard.file),
                    shard.tensors.size());
  }
  Checkpoint::Part part = open_weight_file(path);
  check_shard_tensors(part, shard, all, where);
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
  const std::string where = printable_path(index);
  const std::string text = read_text(index, kMaxIndexBytes);
  WeightIndex found = parse_weight_index(text, where);
  std::vector<WeightIndex::Shard>& shards = found.shards;
  for (const WeightIndex::Shard& shard : shards) {
    check_shard_name(shard.file, where);
  }
  std::ranges::sort(shards, {}, &WeightIndex::Shard::file);
  std::set<std::string_view> all;
  for (const WeightIndex::Shard& shard : shards) {
    all.insert(shard.tensors.begin(), shard.tensors.end());
  }
  return open_in_parallel(shards.size(), [&](std::size_t i) {
    return open_shard(index.parent_path(), shards[i], all, where);
  });
}

IndexListing listing_of_index(const std::filesystem::path& index) {
  const std::string text = read_text(index, kMaxIndexBytes);
  const WeightIndex found = parse_weight_index(text, printable(index.filename().string()));
  IndexListing listing{found.total_size, {}};
  for (const WeightIndex::Shard& shard : found.shards) {
    append(listing.tensors, shard.tensors);
  }
  std::ranges::sort(listing.tensors);
  return listing;
}

}  // namespace regroup

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/tensors/gguf.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSplitPrefix = "split.";
constexpr std::string_view kNumber = "split.no";
constexpr std::string_view kCount = "split.count";
constexpr std::string_view kTensors = "split.tensors.count";
constexpr std::string_view kExtension = ".gguf";

// A file of which gguf-split merged the parts has the count 0.
std::int64_t parts_recorded_in(const GgufMetadata& metadata) {
  return std::max<std::int64_t>(metadata.count(kCount).value_or(1), 1);
}

std::int64_t needed_count(const GgufMetadata& metadata, std::string_view key) {
  const auto value = metadata.count(key);
  if (!value) {
    throw_bad_input("{}: has {} but no {}", metadata.where(), kCount, key);
  }
  return *value;
}

std::string count_text(const GgufMetadata& metadata, std::string_view key) {
  const auto value = metadata.count(key);
  return value ? fmt::to_string(*value) : "missing";
}

void check_limit(const GgufMetadata& metadata, std::string_view key, std::int64_t number,
                 std::uint64_t most) {
  if (static_cast<std::uint64_t>(number) > most) {
    throw_bad_input("{}: {} is {}, at most {} allowed", metadata.where(), key, number, most);
  }
}

// What a file says of itself must be what its name says: the other parts are found by their names.
void check_name(const fs::path& file, const GgufMetadata& metadata) {
  const auto name = parse_gguf_part_name(file.filename().string());
  const std::int64_t count = parts_recorded_in(metadata);
  if (count == 1 && name && name->count > 1) {
    throw_bad_input(
        "{}: the name is that of one of {} parts, but the file is not ({} is {}); rename it if it "
        "is a whole model",
        metadata.where(), name->count, kCount, count_text(metadata, kCount));
  }
  if (count == 1) {
    return;
  }
  const auto number = static_cast<std::uint64_t>(needed_count(metadata, kNumber)) + 1;
  if (!name || name->count != count || static_cast<std::uint64_t>(name->number) != number) {
    throw_bad_input(
        "{}: is part {} of {} ({}, {}), which must be called NAME-{:05}-of-{:05}.gguf, as the "
        "other parts are",
        metadata.where(), number, count, kNumber, kCount, number, count);
  }
}

// Opens a file that is named as the only or first one of a model.
GgufFile open_first(const fs::path& file) {
  GgufFile first = open_gguf(file);
  check_name(file, first.metadata);
  auto name = parse_gguf_part_name(file.filename().string());
  if (name && name->number != 1) {
    const std::int64_t number = std::exchange(name->number, 1);
    throw_bad_input("{}: is part {} of {}; give the first one, {}", first.metadata.where(), number,
                    name->count, printable(name->text()));
  }
  return first;
}

void check_same_model(const GgufMetadata& first, const GgufMetadata& part) {
  for (const std::string_view key : {kCount, kTensors}) {
    if (part.count(key) != first.count(key)) {
      throw_bad_input("{}: is not a part of the model of {}: {} is {}, there {}", part.where(),
                      first.where(), key, count_text(part, key), count_text(first, key));
    }
  }
  for (const GgufMetadata::Entry& entry : part.entries()) {
    const GgufMetadata::Entry* other = first.find(entry.key);
    const bool of_the_file = entry.key.starts_with(kSplitPrefix) || entry.key == kGgufAlignmentKey;
    if (!of_the_file && other != nullptr &&
        (other->type != entry.type || other->bytes != entry.bytes)) {
      throw_bad_input("{}: is not a part of the model of {}: {} has another value there",
                      part.where(), first.where(), printable(entry.key));
    }
  }
}

void remove_split_keys(GgufMetadata& metadata) {
  metadata.remove_if([](std::string_view key) { return key.starts_with(kSplitPrefix); });
}

GgufModelFiles begin_model(GgufFile first) {
  check_limit(first.metadata, kCount, parts_recorded_in(first.metadata), kMaxGgufParts);
  check_limit(first.metadata, kTensors, needed_count(first.metadata, kTensors), kMaxGgufTensors);
  GgufModelFiles model{std::move(first.metadata), {}};
  model.parts.push_back(std::move(first.part));
  return model;
}

void check_tensor_count(const GgufModelFiles& model, bool complete) {
  std::uint64_t tensors = 0;
  for (const Checkpoint::Part& part : model.parts) {
    tensors += part.tensors.size();
  }
  const auto expected = static_cast<std::uint64_t>(needed_count(model.metadata, kTensors));
  if (tensors > expected || (complete && tensors != expected)) {
    throw_bad_input("{}: its {} parts have {} tensors, {} is {}", model.metadata.where(),
                    model.parts.size(), tensors, kTensors, expected);
  }
}

// Only the tensors of a further part are kept: loaders, too, read the keys of the first.
void append_part(GgufModelFiles& model, GgufFile part) {
  check_same_model(model.metadata, part.metadata);
  const std::int64_t number = needed_count(part.metadata, kNumber);
  if (static_cast<std::uint64_t>(number) != model.parts.size()) {
    throw_bad_input("{}: {} is {}, {} is needed here", part.metadata.where(), kNumber, number,
                    model.parts.size());
  }
  part.part.metadata.clear();
  model.parts.push_back(std::move(part.part));
  check_tensor_count(model, false);
}

GgufModelFiles finished(GgufModelFiles model) {
  const auto count = static_cast<std::uint64_t>(parts_recorded_in(model.metadata));
  if (model.parts.size() != count) {
    throw_bad_input("{}: {} parts are given, {} is {}", model.metadata.where(), model.parts.size(),
                    kCount, count);
  }
  check_tensor_count(model, true);
  remove_split_keys(model.metadata);
  return model;
}

GgufFile open_part(const fs::path& directory, const GgufPartName& name) {
  const fs::path path = directory / name.text();
  if (!path_exists(path)) {
    throw_bad_input("{}: part {} of {} is missing", printable_path(path), name.number, name.count);
  }
  GgufFile part = open_gguf(path);
  if (parts_recorded_in(part.metadata) == name.count) {
    check_name(path, part.metadata);  // else it is of another model, which joining tells
  }
  return part;
}

}  // namespace

std::string GgufPartName::text() const {
  return fmt::format("{}-{:05}-of-{:05}{}", prefix, number, count, kExtension);
}

std::optional<GgufPartName> parse_gguf_part_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kDigits = 5;
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits;  // "-00001-of-00003"
  if (!name.ends_with(kExtension) || name.size() < kTail + kExtension.size()) {
    return std::nullopt;
  }
  name.remove_suffix(kExtension.size());
  const std::string_view tail = name.substr(name.size() - kTail);
  const std::string_view number = tail.substr(1, kDigits);
  const std::string_view count = tail.substr(kTail - kDigits);
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  if (tail.front() != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf ||
      !std::ranges::all_of(number, is_digit) || !std::ranges::all_of(count, is_digit)) {
    return std::nullopt;
  }
  const GgufPartName found{std::string(name.substr(0, name.size() - kTail)),
                           std::stoi(std::string(number)), std::stoi(std::string(count))};
  return found.number >= 1 && found.number <= found.count ? std::optional(found) : std::nullopt;
}

GgufModelFiles join_gguf_parts(std::vector<GgufFile> parts) {
  GgufModelFiles model = begin_model(std::move(parts.front()));
  for (std::size_t i = 1; i < parts.size(); ++i) {
    append_part(model, std::move(parts[i]));
  }
  return finished(std::move(model));
}

GgufModelFiles open_gguf_files(const fs::path& file) {
  GgufFile first = open_first(file);
  const std::int64_t count = parts_recorded_in(first.metadata);
  if (count == 1) {
    GgufModelFiles model{std::move(first.metadata), {}};
    model.parts.push_back(std::move(first.part));
    remove_split_keys(model.metadata);
    return model;
  }
  GgufPartName name = parse_gguf_part_name(file.filename().string()).value();
  GgufModelFiles model = begin_model(std::move(first));
  while (name.number < count) {
    ++name.number;
    append_part(model, open_part(file.parent_path(), name));
  }
  return finished(std::move(model));
}

GgufMetadata gguf_metadata_of(const fs::path& file) {
  GgufMetadata metadata = std::move(open_first(file).metadata);
  remove_split_keys(metadata);
  return metadata;
}

std::optional<fs::path> gguf_model_in(const fs::path& directory) {
  std::set<std::string> models;
  std::error_code fault;
  for (fs::directory_iterator entry(directory, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(kExtension) || name.starts_with('.')) {
      continue;
    }
    auto part = parse_gguf_part_name(name);
    if (part) {
      part->number = 1;
    }
    models.insert(part ? part->text() : name);
  }
  if (models.size() > 1) {
    throw_bad_input("{}: holds {} models in GGUF files; give the path of one, such as {}",
                    printable_path(directory), models.size(), printable(*models.begin()));
  }
  if (models.empty()) {
    return std::nullopt;
  }
  const fs::path first = directory / *models.begin();
  if (!path_exists(first)) {
    throw_bad_input("{}: part 1 of {} is missing", printable_path(first),
                    parse_gguf_part_name(*models.begin()).value().count);
  }
  return first;
}

}  // namespace regroup

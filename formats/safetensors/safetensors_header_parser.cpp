#include "formats/safetensors/safetensors_header_parser.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/safetensors/safetensors_entry_count.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kUsualRank = 2;

}  // namespace

void SafetensorsHeaderParser::parse(std::string_view header) {
  constexpr std::size_t kUsualEntry = 100;  // bytes
  constexpr std::size_t kEnough = 4096;     // entries
  tensors_.reserve(std::min(header.size() / kUsualEntry, kEnough));
  read_json_events(header, *this);
  check_names();
}

// Throws: `found` is not allowed in the current state.
void SafetensorsHeaderParser::reject(std::string_view found) const {
  switch (state_) {
    case State::kStart:
    case State::kDone:
      throw_bad_input("{}: the header holds {}, one JSON object is needed", where_, found);
    case State::kTop:
      throw_bad_input("{}: entry {} holds {}, an object is needed", where_, printable(entry_.name),
                      found);
    case State::kMetadata:
      throw_bad_input("{}: __metadata__ key {} holds {}, a string is needed", where_,
                      printable(metadata_key_), found);
    case State::kEntry:
      throw_bad_input("{}: tensor {}: {} holds {}, {} is needed", where_, printable(entry_.name),
                      field_ == Field::kDType   ? "dtype"
                      : field_ == Field::kShape ? "shape"
                                                : "data_offsets",
                      found, field_ == Field::kDType ? "a string" : "an array");
    case State::kShape:
      throw_bad_input("{}: tensor {}: shape holds {}, whole numbers from 0 to 2^63-1 are needed",
                      where_, printable(entry_.name), found);
    case State::kOffsets:
      throw_bad_input("{}: tensor {}: data_offsets holds {}, two whole numbers are needed", where_,
                      printable(entry_.name), found);
  }
  throw_bad_input("{}: unexpected {}", where_, found);
}

bool SafetensorsHeaderParser::null() { reject("null"); }
bool SafetensorsHeaderParser::boolean(bool /*value*/) { reject("a boolean"); }
bool SafetensorsHeaderParser::other_number(std::string_view spelling) {
  reject(fmt::format("the number {}", printable(spelling)));
}

bool SafetensorsHeaderParser::whole_number(std::uint64_t value) {
  if (state_ == State::kShape &&
      value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    if (entry_.shape.size() == kMaxRank) {
      throw_bad_input("{}: tensor {}: more than {} dimensions", where_, printable(entry_.name),
                      kMaxRank);
    }
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  if (state_ == State::kOffsets && offset_count_ < offsets_.size()) {
    offsets_[offset_count_++] = value;
    return true;
  }
  reject(fmt::format("the number {}", value));
}

bool SafetensorsHeaderParser::string(std::string_view value) {
  if (state_ == State::kMetadata) {
    if (metadata_.size() == kMaxSafetensorsKeys) {
      throw_bad_input("{}: more than {} __metadata__ keys", where_, kMaxSafetensorsKeys);
    }
    if (!metadata_.emplace(metadata_key_, value).second) {
      throw_bad_input("{}: duplicate __metadata__ key {}", where_, printable(metadata_key_));
    }
    return true;
  }
  if (state_ != State::kEntry || field_ != Field::kDType) {
    reject(fmt::format("the string \"{}\"", printable(value, 40)));
  }
  const auto dtype = dtype_from_name(value);
  if (!dtype) {
    throw_bad_input("{}: tensor {}: unknown dtype {}", where_, printable(entry_.name),
                    printable(value));
  }
  entry_.dtype = *dtype;
  return true;
}

bool SafetensorsHeaderParser::start_object() {
  if (state_ == State::kStart) {
    state_ = State::kTop;
  } else if (state_ == State::kTop) {
    state_ = entry_.name == "__metadata__" ? State::kMetadata : State::kEntry;
  } else {
    reject("an object");
  }
  return true;
}

bool SafetensorsHeaderParser::key(std::string_view value) {
  if (state_ == State::kMetadata) {
    metadata_key_ = value;
  } else if (state_ == State::kTop) {
    begin_entry(value);
  } else {
    begin_field(value);
  }
  return true;
}

void SafetensorsHeaderParser::begin_entry(std::string_view name) {
  if (name != "__metadata__") {
    if (tensors_.size() == kMaxSafetensorsTensors) {
      throw_bad_input("{}: more than {} tensors", where_, kMaxSafetensorsTensors);
    }
  } else if (std::exchange(seen_metadata_, true)) {
    throw_bad_input("{}: duplicate entry {}", where_, name);
  }
  entry_ = TensorInfo{};
  entry_.name = name;
  entry_.shape.reserve(kUsualRank);
  offset_count_ = 0;
  has_dtype_ = has_shape_ = has_offsets_ = false;
}

void SafetensorsHeaderParser::begin_field(std::string_view name) {
  bool* seen = nullptr;
  if (name == "dtype") {
    field_ = Field::kDType;
    seen = &has_dtype_;
  } else if (name == "shape") {
    field_ = Field::kShape;
    seen = &has_shape_;
  } else if (name == "data_offsets") {
    field_ = Field::kOffsets;
    seen = &has_offsets_;
  } else {
    throw_bad_input("{}: tensor {}: unknown field {}", where_, printable(entry_.name),
                    printable(name));
  }
  if (std::exchange(*seen, true)) {
    throw_bad_input("{}: tensor {}: duplicate field {}", where_, printable(entry_.name), name);
  }
}

bool SafetensorsHeaderParser::end_object() {
  if (state_ == State::kEntry) {
    finish_entry();
    state_ = State::kTop;
  } else {
    state_ = state_ == State::kMetadata ? State::kTop : State::kDone;
  }
  return true;
}

bool SafetensorsHeaderParser::start_array() {
  if (state_ != State::kEntry || field_ == Field::kDType) {
    reject("an array");
  }
  state_ = field_ == Field::kShape ? State::kShape : State::kOffsets;
  return true;
}

bool SafetensorsHeaderParser::end_array() {
  if (state_ == State::kOffsets && offset_count_ != offsets_.size()) {
    reject(fmt::format("{} numbers", offset_count_));
  }
  state_ = State::kEntry;
  return true;
}

void SafetensorsHeaderParser::finish_entry() {
  const std::string_view missing = !has_dtype_     ? "dtype"
                                   : !has_shape_   ? "shape"
                                   : !has_offsets_ ? "data_offsets"
                                                   : "";
  if (!missing.empty()) {
    throw_bad_input("{}: tensor {}: field {} is missing", where_, printable(entry_.name), missing);
  }
  entry_.begin = offsets_[0];
  entry_.end = offsets_[1];
  if (entry_.begin > entry_.end) {
    throw_bad_input("{}: tensor {}: data_offsets begin {} after end {}", where_,
                    printable(entry_.name), entry_.begin, entry_.end);
  }
  std::uint64_t expected = 0;
  try {
    expected = tensor_bytes(entry_.dtype, entry_.shape);
  } catch (const Error& fault) {
    throw_bad_input("{}: tensor {}: {}", where_, printable(entry_.name), fault.what());
  }
  if (entry_.bytes() != expected) {
    throw_bad_input("{}: tensor {}: data_offsets span {} bytes, {} of {} need {}", where_,
                    printable(entry_.name), entry_.bytes(), text_of(entry_.shape),
                    name_of(entry_.dtype), expected);
  }
  tensors_.push_back(std::move(entry_));
}

// Sorts by hash, because hashes compare faster than names. Names decide between equal hashes.
void SafetensorsHeaderParser::check_names() const {
  using Hashed = std::pair<std::size_t, std::string_view>;
  std::vector<Hashed> names;
  names.reserve(tensors_.size());
  for (const TensorInfo& tensor : tensors_) {
    names.emplace_back(std::hash<std::string_view>()(tensor.name), tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw_bad_input("{}: duplicate entry {}", where_, printable(twice->second));
  }
}

bool SafetensorsHeaderParser::broken(std::size_t position, std::string_view why) {
  throw_bad_input("{}: the header is not valid JSON at byte {}: {}", where_, position, why);
}

}  // namespace regroup

#include "formats/safetensors_header_parser.h"

#include <limits>

#include "formats/error.h"
#include "formats/printable.h"
#include "formats/safetensors_entry_count.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxRank = 64;

}  // namespace

void SafetensorsHeaderParser::parse(std::string_view header) {
  nlohmann::json::sax_parse(header.begin(), header.end(), this);
}

// `found` stands where the current state allows something else.
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
bool SafetensorsHeaderParser::number_integer(number_integer_t /*value*/) {
  reject("a negative number");
}
bool SafetensorsHeaderParser::number_float(number_float_t /*value*/, const string_t& spelling) {
  reject(printable(spelling));
}
bool SafetensorsHeaderParser::binary(binary_t& /*value*/) { reject("binary data"); }

bool SafetensorsHeaderParser::number_unsigned(number_unsigned_t value) {
  if (state_ == State::kShape &&
      value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    if (entry_.shape.size() == kMaxRank) {
      throw_bad_input("{}: tensor {}: more than {} dimensions", where_, printable(entry_.name),
                      kMaxRank);
    }
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  if (state_ == State::kOffsets && offsets_.size() < 2) {
    offsets_.push_back(value);
    return true;
  }
  reject(fmt::format("the number {}", value));
}

bool SafetensorsHeaderParser::string(string_t& value) {
  if (state_ == State::kMetadata) {
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

bool SafetensorsHeaderParser::start_object(std::size_t /*elements*/) {
  if (state_ == State::kStart) {
    state_ = State::kTop;
  } else if (state_ == State::kTop) {
    state_ = entry_.name == "__metadata__" ? State::kMetadata : State::kEntry;
  } else {
    reject("an object");
  }
  return true;
}

bool SafetensorsHeaderParser::key(string_t& value) {
  if (state_ == State::kMetadata) {
    metadata_key_ = value;
    return true;
  }
  if (state_ == State::kTop) {
    const bool duplicate = value == "__metadata__" ? std::exchange(seen_metadata_, true)
                                                   : !names_.insert(value).second;
    if (duplicate) {
      throw_bad_input("{}: duplicate entry {}", where_, printable(value));
    }
    if (names_.size() > kMaxSafetensorsTensors) {
      throw_bad_input("{}: more than {} tensors", where_, kMaxSafetensorsTensors);
    }
    entry_ = TensorInfo{};
    entry_.name = value;
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return true;
  }
  bool* seen = nullptr;
  if (value == "dtype") {
    field_ = Field::kDType;
    seen = &has_dtype_;
  } else if (value == "shape") {
    field_ = Field::kShape;
    seen = &has_shape_;
  } else if (value == "data_offsets") {
    field_ = Field::kOffsets;
    seen = &has_offsets_;
  } else {
    throw_bad_input("{}: tensor {}: unknown field {}", where_, printable(entry_.name),
                    printable(value));
  }
  if (std::exchange(*seen, true)) {
    throw_bad_input("{}: tensor {}: duplicate field {}", where_, printable(entry_.name), value);
  }
  return true;
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

bool SafetensorsHeaderParser::start_array(std::size_t /*elements*/) {
  if (state_ != State::kEntry || field_ == Field::kDType) {
    reject("an array");
  }
  state_ = field_ == Field::kShape ? State::kShape : State::kOffsets;
  return true;
}

bool SafetensorsHeaderParser::end_array() {
  if (state_ == State::kOffsets && offsets_.size() != 2) {
    reject(fmt::format("{} numbers", offsets_.size()));
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

bool SafetensorsHeaderParser::parse_error(std::size_t position, const std::string& /*token*/,
                                          const nlohmann::detail::exception& fault) {
  throw_bad_input("{}: the header is not valid JSON at byte {}: {}", where_, position,
                  printable(fault.what()));
}

}  // namespace regroup

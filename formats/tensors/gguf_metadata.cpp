#include "formats/tensors/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// Of value types, in the order of the enumeration.
constexpr std::array<std::string_view, 13> kValueTypeNames{
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
constexpr std::array<std::uint64_t, 13> kValueTypeBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <typename T>
std::string encode(T value) {
  std::string bytes;
  append_number(bytes, value);
  return bytes;
}

std::string encode(const std::string& text) {
  return encode<std::uint64_t>(text.size()).append(text);
}

// The array's type and size, then its elements.
template <typename T>
std::string encode_array(GgufType type, std::span<const T> values) {
  std::string bytes = encode(static_cast<std::uint32_t>(type));
  append_number<std::uint64_t>(bytes, values.size());
  for (const T& value : values) {
    bytes += encode(value);
  }
  return bytes;
}

std::optional<std::int64_t> decode_integer(GgufType type, std::string_view bytes) {
  switch (type) {
    case GgufType::kU8: return number_at<std::uint8_t>(bytes);
    case GgufType::kI8: return number_at<std::int8_t>(bytes);
    case GgufType::kU16: return number_at<std::uint16_t>(bytes);
    case GgufType::kI16: return number_at<std::int16_t>(bytes);
    case GgufType::kU32: return number_at<std::uint32_t>(bytes);
    case GgufType::kI32: return number_at<std::int32_t>(bytes);
    case GgufType::kI64: return number_at<std::int64_t>(bytes);
    case GgufType::kU64: {
      const auto value = number_at<std::uint64_t>(bytes);
      return value <= std::numeric_limits<std::int64_t>::max()
                 ? std::optional(static_cast<std::int64_t>(value))
                 : std::nullopt;
    }
    default: return std::nullopt;
  }
}

std::optional<double> decode_number(GgufType type, std::string_view bytes) {
  if (type == GgufType::kF32) {
    // Converts through decimal text: the float nearest to 1e-5 is not the double nearest to it.
    const std::string decimal = fmt::format("{}", number_at<float>(bytes));
    return std::strtod(decimal.c_str(), nullptr);
  }
  if (type == GgufType::kF64) {
    return number_at<double>(bytes);
  }
  const auto integer = decode_integer(type, bytes);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

template <typename T, typename Decode>
std::optional<std::vector<T>> decode_all(GgufType type, std::uint64_t size,
                                         std::string_view elements, Decode decode_one) {
  const std::uint64_t bytes = gguf_bytes_of(type);
  std::vector<T> values;
  for (std::uint64_t i = 0; bytes > 0 && i < size; ++i) {
    const auto value = decode_one(type, elements.substr(i * bytes, bytes));
    if (!value) {
      return std::nullopt;
    }
    values.push_back(*value);
  }
  return bytes == 0 ? std::nullopt : std::optional(std::move(values));
}

}  // namespace

std::string_view name_of(GgufType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kValueTypeNames.size() ? kValueTypeNames[number] : "unknown";
}

std::uint64_t gguf_bytes_of(GgufType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kValueTypeBytes.size() ? kValueTypeBytes[number] : 0;
}

std::optional<std::vector<std::int64_t>> GgufArray::integers() const {
  return decode_all<std::int64_t>(type_, size_, elements_, decode_integer);
}

std::optional<std::vector<double>> GgufArray::numbers() const {
  return decode_all<double>(type_, size_, elements_, decode_number);
}

std::optional<std::vector<std::string_view>> GgufArray::strings() const {
  if (type_ != GgufType::kString) {
    return std::nullopt;
  }
  std::vector<std::string_view> views;
  views.reserve(size_);
  std::string_view rest = elements_;
  for (std::uint64_t i = 0; i < size_; ++i) {
    const auto length = number_at<std::uint64_t>(rest);
    views.push_back(rest.substr(sizeof(length), length));
    rest.remove_prefix(sizeof(length) + length);
  }
  return views;
}

const GgufMetadata::Entry* GgufMetadata::find(std::string_view key) const {
  const auto found = by_key_.find(std::string(key));
  return found == by_key_.end() ? nullptr : &entries_[found->second];
}

void GgufMetadata::refuse(const Entry& entry, std::string_view needed) const {
  const auto found = decode_number(entry.type, entry.bytes);
  throw_bad_input("{}: {} is {}, {} is needed", where_, printable(entry.key),
                  found ? fmt::format("{} ({})", *found, name_of(entry.type))
                        : fmt::format("of type {}", name_of(entry.type)),
                  needed);
}

const GgufMetadata::Entry* GgufMetadata::find(std::string_view key, GgufType type,
                                              std::string_view needed) const {
  const Entry* entry = find(key);
  if (entry != nullptr && entry->type != type) {
    refuse(*entry, needed);
  }
  return entry;
}

std::optional<std::int64_t> GgufMetadata::count(std::string_view key) const {
  const Entry* entry = find(key);
  const auto value = entry == nullptr ? std::nullopt : decode_integer(entry->type, entry->bytes);
  if (entry != nullptr && value.value_or(-1) < 0) {
    refuse(*entry, "a whole number from 0");
  }
  return value;
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const Entry* entry = find(key);
  const auto value = entry == nullptr ? std::nullopt : decode_number(entry->type, entry->bytes);
  if (entry != nullptr && !value) {
    refuse(*entry, "a number");
  }
  return value;
}

std::optional<bool> GgufMetadata::flag(std::string_view key) const {
  const Entry* entry = find(key, GgufType::kBool, "a bool");
  return entry == nullptr ? std::nullopt : std::optional(entry->bytes.front() != '\0');
}

std::optional<std::string_view> GgufMetadata::text(std::string_view key) const {
  const Entry* entry = find(key, GgufType::kString, "a string");
  return entry == nullptr
             ? std::nullopt
             : std::optional(std::string_view(entry->bytes).substr(sizeof(std::uint64_t)));
}

std::optional<GgufArray> GgufMetadata::array(std::string_view key) const {
  const Entry* entry = find(key, GgufType::kArray, "an array");
  if (entry == nullptr) {
    return std::nullopt;
  }
  const std::string_view bytes = entry->bytes;
  constexpr std::size_t kHeadOfArray = sizeof(std::uint32_t) + sizeof(std::uint64_t);
  return GgufArray(static_cast<GgufType>(number_at<std::uint32_t>(bytes)),
                   number_at<std::uint64_t>(bytes, sizeof(std::uint32_t)),
                   bytes.substr(kHeadOfArray));
}

std::optional<std::vector<std::int64_t>> GgufMetadata::counts(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) {
    return std::nullopt;
  }
  if (entry->type != GgufType::kArray) {
    return std::vector{*count(key)};
  }
  auto values = array(key)->integers();
  if (!values || std::ranges::any_of(*values, [](std::int64_t value) { return value < 0; })) {
    refuse(*entry, "a whole number from 0, or an array of them,");
  }
  return values;
}

void GgufMetadata::set(Entry entry) {
  const auto [found, is_new] = by_key_.emplace(entry.key, entries_.size());
  if (is_new) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[found->second] = std::move(entry);
  }
}

void GgufMetadata::set_u32(std::string_view key, std::uint32_t value) {
  set({std::string(key), GgufType::kU32, encode(value)});
}

void GgufMetadata::set_f32(std::string_view key, float value) {
  set({std::string(key), GgufType::kF32, encode(value)});
}

void GgufMetadata::set_bool(std::string_view key, bool value) {
  set({std::string(key), GgufType::kBool, std::string(1, value ? '\1' : '\0')});
}

void GgufMetadata::set_string(std::string_view key, std::string_view value) {
  set({std::string(key), GgufType::kString, encode(std::string(value))});
}

void GgufMetadata::set_array(std::string_view key, std::span<const std::int32_t> values) {
  set({std::string(key), GgufType::kArray, encode_array(GgufType::kI32, values)});
}

void GgufMetadata::set_array(std::string_view key, std::span<const float> values) {
  set({std::string(key), GgufType::kArray, encode_array(GgufType::kF32, values)});
}

void GgufMetadata::set_array(std::string_view key, std::span<const std::string> values) {
  set({std::string(key), GgufType::kArray, encode_array(GgufType::kString, values)});
}

void GgufMetadata::remove_if(const std::function<bool(std::string_view key)>& unwanted) {
  std::erase_if(entries_, [&](const Entry& entry) { return unwanted(entry.key); });
  by_key_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    by_key_.emplace(entries_[i].key, i);
  }
}

}  // namespace regroup

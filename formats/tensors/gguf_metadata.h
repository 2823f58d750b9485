// The key-value pairs of a GGUF file: typed, in file order, each kept in its encoded form.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace regroup {

/// Value types, numbered as in the file.
enum class GgufType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

/// For example "u8" or "string"; "unknown" for an invalid number.
std::string_view name_of(GgufType type);

/// Bytes of one value of a fixed-size type; 0 for strings, arrays and invalid types.
std::uint64_t gguf_bytes_of(GgufType type);

/// A view of an array's elements, valid until the owning metadata changes.
class GgufArray {
 public:
  /// `elements` holds exactly `size` encoded values of `type`.
  GgufArray(GgufType type, std::uint64_t size, std::string_view elements)
      : type_(type), size_(size), elements_(elements) {}

  GgufType type() const { return type_; }
  std::uint64_t size() const { return size_; }

  /// The elements as integers; nothing if they have another type or are too large.
  std::optional<std::vector<std::int64_t>> integers() const;
  /// The elements as numbers; nothing if they have another type.
  std::optional<std::vector<double>> numbers() const;
  /// Views of the elements; nothing if they are not strings.
  std::optional<std::vector<std::string_view>> strings() const;

 private:
  GgufType type_;
  std::uint64_t size_;
  std::string_view elements_;
};

/// Getters return nothing for an absent key and throw kBadInput "<file>: <key> is <found>,
/// <allowed> is needed" for a value of another type. Setters replace a value in place, or append a
/// new key.
class GgufMetadata {
 public:
  struct Entry {
    std::string key;
    GgufType type = GgufType::kU32;
    std::string bytes;  ///< the encoded value, without its type
  };

  GgufMetadata() = default;
  /// Error messages begin with `where` (a file name).
  explicit GgufMetadata(std::string where) : where_(std::move(where)) {}

  std::span<const Entry> entries() const { return entries_; }
  const Entry* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  /// An integer of any width, from 0 to 2^63 - 1.
  std::optional<std::int64_t> count(std::string_view key) const;
  /// A number of any type. An f32 is read as the shortest decimal that rounds to it, such as 1e-5.
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<GgufArray> array(std::string_view key) const;
  /// An integer or an array of integers.
  std::optional<std::vector<std::int64_t>> counts(std::string_view key) const;

  void set_u32(std::string_view key, std::uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_array(std::string_view key, std::span<const std::int32_t> values);
  void set_array(std::string_view key, std::span<const float> values);
  void set_array(std::string_view key, std::span<const std::string> values);
  /// Sets an already encoded value, such as an entry of another file.
  void set(Entry entry);
  /// Removes the entries whose key is unwanted. The others keep their order.
  void remove_if(const std::function<bool(std::string_view key)>& unwanted);

  const std::string& where() const { return where_; }

 private:
  const Entry* find(std::string_view key, GgufType type, std::string_view needed) const;
  [[noreturn]] void refuse(const Entry& entry, std::string_view needed) const;

  std::string where_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> by_key_;
};

}  // namespace regroup

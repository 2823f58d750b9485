// The key-value pairs of a GGUF file: typed, in file order, each kept as the bytes that encode it.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace regroup {

/// The types of values, numbered as in the file.
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

/// "u8", "string" and so on; "unknown" for a number that is no type.
std::string_view name_of(GgufType type);

/// Bytes of one value of a type of fixed size; 0 for strings, arrays and what is no type.
std::uint64_t gguf_bytes_of(GgufType type);

/// A view of an array's elements, valid as long as the metadata they belong to is unchanged.
class GgufArray {
 public:
  /// `elements` are `size` encoded values of `type`, known to be complete.
  GgufArray(GgufType type, std::uint64_t size, std::string_view elements)
      : type_(type), size_(size), elements_(elements) {}

  GgufType type() const { return type_; }
  std::uint64_t size() const { return size_; }

  /// The elements as whole numbers; nothing where they are of another kind, or too large.
  std::optional<std::vector<std::int64_t>> integers() const;
  /// The elements as numbers; nothing where they are something else.
  std::optional<std::vector<double>> numbers() const;
  /// Views of the elements; nothing where they are no strings.
  std::optional<std::vector<std::string_view>> strings() const;

 private:
  GgufType type_;
  std::uint64_t size_;
  std::string_view elements_;
};

/// Getters give nothing for an absent key, and throw kBadInput "<file>: <key> is <found>, <allowed>
/// is needed" for a value of another type. Setters replace a value where it stands, else append.
class GgufMetadata {
 public:
  struct Entry {
    std::string key;
    GgufType type = GgufType::kU32;
    std::string bytes;  ///< the value as it stands in the file, after its type
  };

  GgufMetadata() = default;
  /// `where` (a file name) opens error messages.
  explicit GgufMetadata(std::string where) : where_(std::move(where)) {}

  std::span<const Entry> entries() const { return entries_; }
  const Entry* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  /// A whole number of any width, from 0 to 2^63 - 1.
  std::optional<std::int64_t> count(std::string_view key) const;
  /// A number of any type; an f32 is taken for the shortest decimal that it stands for, such as
  /// 1e-5.
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<GgufArray> array(std::string_view key) const;
  /// One whole number, or an array of them.
  std::optional<std::vector<std::int64_t>> counts(std::string_view key) const;

  void set_u32(std::string_view key, std::uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_array(std::string_view key, std::span<const std::int32_t> values);
  void set_array(std::string_view key, std::span<const float> values);
  void set_array(std::string_view key, std::span<const std::string> values);
  /// A value as another file encodes it, such as one of its entries.
  void set(Entry entry);
  /// Whether there was such a key.
  bool remove(std::string_view key);

  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void refuse(const Entry& entry, std::string_view needed) const;

  std::string where_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> by_key_;
};

}  // namespace regroup

// A hash table from names to numbers, without an allocation per entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace regroup {

/// Maps names to numbers below 2^32 - 1. Names are not copied and must outlive the table.
class NameTable {
 public:
  /// Reserves space for `expected` names; more can be added.
  explicit NameTable(std::size_t expected = 0);

  /// Adds a name. If it is already present, changes nothing and returns its number.
  std::optional<std::size_t> insert(std::string_view name, std::size_t number);

  /// The number of a name, if present.
  std::optional<std::size_t> find(std::string_view name) const;

 private:
  static constexpr auto kFree = static_cast<std::uint32_t>(-1);

  struct Slot {
    const char* name = nullptr;
    std::uint32_t size = 0;
    std::uint32_t hash = 0;
    std::uint32_t number = kFree;
  };

  std::size_t place_of(std::string_view name, std::uint32_t hash) const;
  void grow();

  std::vector<Slot> slots_;  // size: a power of two; at least a quarter are free
  std::size_t used_ = 0;
};

}  // namespace regroup

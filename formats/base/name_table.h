// Finds names among many: a hash table without a node for each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace regroup {

/// Names, each with a number below 2^32 - 1. They are not copied and have to outlive the table.
class NameTable {
 public:
  /// Room for so many; more may come.
  explicit NameTable(std::size_t expected = 0);

  /// Adds a name that is not there yet. Returns the number of one that is, and leaves it.
  std::optional<std::size_t> insert(std::string_view name, std::size_t number);

  /// The number of a name.
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

  std::vector<Slot> slots_;  // a power of two, at least a quarter of them free
  std::size_t used_ = 0;
};

}  // namespace regroup

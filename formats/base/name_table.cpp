#include "formats/base/name_table.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace regroup {
namespace {

std::size_t slots_for(std::size_t names) {
  return std::bit_ceil(std::max<std::size_t>(names / 3 * 4 + 4, 8));
}

std::uint32_t hash_of(std::string_view name) {
  return static_cast<std::uint32_t>(std::hash<std::string_view>()(name));
}

}  // namespace

NameTable::NameTable(std::size_t expected) : slots_(slots_for(expected)) {}

// The slot of the name, or the free slot where it belongs.
std::size_t NameTable::place_of(std::string_view name, std::uint32_t hash) const {
  const std::size_t last = slots_.size() - 1;
  std::size_t at = hash & last;
  while (slots_[at].number != kFree &&
         (slots_[at].hash != hash || std::string_view(slots_[at].name, slots_[at].size) != name)) {
    at = (at + 1) & last;
  }
  return at;
}

std::optional<std::size_t> NameTable::insert(std::string_view name, std::size_t number) {
  if (used_ >= slots_.size() / 4 * 3) {
    grow();
  }
  const std::uint32_t hash = hash_of(name);
  Slot& slot = slots_[place_of(name, hash)];
  if (slot.number != kFree) {
    return slot.number;
  }
  slot = {name.data(), static_cast<std::uint32_t>(name.size()), hash,
          static_cast<std::uint32_t>(number)};
  ++used_;
  return std::nullopt;
}

std::optional<std::size_t> NameTable::find(std::string_view name) const {
  const Slot& slot = slots_[place_of(name, hash_of(name))];
  return slot.number != kFree ? std::optional<std::size_t>(slot.number) : std::nullopt;
}

void NameTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.number != kFree) {
      slots_[place_of({slot.name, slot.size}, slot.hash)] = slot;
    }
  }
}

}  // namespace regroup

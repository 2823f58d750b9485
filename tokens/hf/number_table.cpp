#include "tokens/hf/number_table.h"

#include <random>

namespace regroup {

NumberTable::NumberTable() : slots_(16, {kNone, kNone}), mask_(15) {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device() | 1;
  }();
  seed_ = seed;
}

void NumberTable::set(std::uint64_t key, std::uint64_t value) {
  if (2 * size_ >= slots_.size()) {
    grow();
  }
  std::size_t place = place_of(key);
  while (slots_[place].first != kNone && slots_[place].first != key) {
    place = (place + 1) & mask_;
  }
  size_ += slots_[place].first == kNone ? 1 : 0;
  slots_[place] = {key, value};
}

void NumberTable::grow() {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> old(2 * slots_.size(), {kNone, kNone});
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  size_ = 0;
  for (const auto& [key, value] : old) {
    if (key != kNone) {
      set(key, value);
    }
  }
}

}  // namespace regroup

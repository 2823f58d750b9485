#include "uptrain/ops/permutation.h"

#include <bit>

namespace regroup {
namespace {

constexpr int kRounds = 4;

// The finaliser of splitmix64 (Steele, Lea & Flood 2014).
std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t mix(std::uint64_t one, std::uint64_t other) {
  return scramble(scramble(one) ^ other);
}

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream)
    : size_(size),
      key_(mix(seed, stream)),
      half_bits_((static_cast<int>(std::bit_width(size)) + 1) / 2) {}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  do {
    index = encrypt(index);
  } while (index >= size_);
  return index;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (mix(key_ + round, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace regroup

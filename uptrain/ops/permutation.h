// A pseudo-random permutation that needs no memory.
#pragma once

#include <cstdint>

namespace regroup {

/// A bijection of [0, size) onto itself, a pure function of its two keys: a four-round Feistel
/// network over the next even number of bits, walked until it lands inside (Black & Rogaway,
/// "Ciphers with arbitrary finite domains", 2002).
class Permutation {
 public:
  /// `size` of at least 1.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream);

  /// The image of `index`, which must be below size.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  std::uint64_t key_;
  int half_bits_;
};

/// A well mixed 64-bit hash of two numbers (splitmix64's finaliser, twice).
std::uint64_t mix(std::uint64_t one, std::uint64_t other);

}  // namespace regroup

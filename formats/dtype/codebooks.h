// The codebooks of ggml's IQ types: lists of groups of four or eight small numbers. A block stores
// a number of the list in place of a group.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace regroup {

class Codebook {
 public:
  /// `chosen` has one bit for each possible group of `length` of the values, in hexadecimal digits,
  /// lowest bit first. Group g has the value of digit i of g, to the base of values.size(), in
  /// place i.
  template <std::size_t N>
  Codebook(const std::array<int, N>& values, std::size_t length, std::string_view chosen)
      : Codebook(values.data(), N, length, chosen) {}

  /// Element `at` of a group. Throws std::out_of_range for a group that is not in the list.
  double value(std::size_t group, std::size_t at) const {
    return elements_.at(group * length_ + at);
  }
  std::size_t size() const { return elements_.size() / length_; }

 private:
  Codebook(const int* values, std::size_t count, std::size_t length, std::string_view chosen);

  std::size_t length_;
  std::vector<std::int8_t> elements_;
};

/// Expanded on first use.
const Codebook& iq2_xxs_codebook();  ///< 256 groups of 8
const Codebook& iq2_xs_codebook();   ///< 512 groups of 8
const Codebook& iq2_s_codebook();    ///< 1024 groups of 8
const Codebook& iq3_xxs_codebook();  ///< 256 groups of 4
const Codebook& iq3_s_codebook();    ///< 512 groups of 4
const Codebook& iq1_codebook();      ///< 2048 groups of 8, of IQ1_S and IQ1_M

}  // namespace regroup

// How models know positions, and the numbers that each way needs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace regroup {

enum class PositionKind { kNone, kRope, kLearned, kSinusoidal, kAlibi, kRelativeBias };

/// "rope", "alibi", "learned", "sinusoidal", "t5" or "none".
std::string_view name_of(PositionKind kind);

/// How RoPE frequencies are scaled for contexts longer than in pretraining. The formulas are in
/// formats/spec/rope_frequencies.cpp.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double original_positions = 0.0;  ///< kDynamic: the model's; others: in pretraining
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  ///< kLlama3
  double beta_fast = 32.0, beta_slow = 1.0;                        ///< kYarn
  bool truncate = true;                                            ///< kYarn
  double attention_factor = 1.0;  ///< kYarn, kLongRope: multiplies cosine and sine
  /// kLongRope: divisors of each pair's frequency, in sequences of up to original_positions tokens
  /// and in longer ones.
  std::vector<double> short_factors, long_factors;

  bool operator==(const RopeScaling&) const = default;
};

struct RopeSpec {
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;  ///< leading dimensions of each head that are rotated
  bool interleaved = false;     ///< pairs (2i, 2i+1), GPT-J; else (i, i + rotary_dim/2)
  RopeScaling scaling;

  bool operator==(const RopeSpec&) const = default;
};

struct AlibiSpec {
  double bias_max = 8.0;
  bool scaled = false;  ///< Falcon: the bias is divided by √d together with q·k
  /// Explicit slopes recorded by regroup, [layer][query head] or one row for all layers. Empty if
  /// the family's formula applies.
  std::vector<std::vector<double>> slopes;
  std::vector<std::vector<double>>
      encoder_slopes;  ///< the same for the encoder of an encoder-decoder
};

/// Sinusoidal positions (Vaswani et al. 2017, section 3.5): the embedding of index p is D/2 sines
/// of p · 10000^(-i / steps), then D/2 cosines.
struct SinusoidSpec {
  std::int64_t steps = 0;  ///< D/2; D/2 - 1 in fairseq's models
};

/// Relative position buckets (Raffel et al. 2020, section 2.1).
struct RelativeBiasSpec {
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
};

}  // namespace regroup

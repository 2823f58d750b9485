// Which tokens a training step sees: a pure function of a seed and a running sample number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/token_file.h"

namespace regroup {

/// Token files as one supply of training windows of T+1 tokens (T inputs, each with the token that
/// follows it). In each epoch every window comes once, in an order of its own; windows begin at
/// another phase each epoch where a file's length leaves room.
class TokenBatches {
 public:
  /// Throws kBadInput naming a file that is shorter than one window or holds a token that is not
  /// below `vocab_size`.
  TokenBatches(const std::vector<std::filesystem::path>& paths, std::int64_t sequence_length,
               std::int64_t vocab_size, std::uint64_t seed);

  /// Samples first … first+count-1: int64 [count, T+1] in host memory.
  at::Tensor batch(std::int64_t first, std::int64_t count) const;

  /// Windows in one epoch.
  std::int64_t windows() const { return windows_; }

  /// Tokens in all files.
  std::int64_t tokens() const;

  std::int64_t sequence_length() const { return sequence_length_; }
  std::span<const TokenFile> files() const { return files_; }

 private:
  void read_window(std::int64_t sample, std::span<std::int64_t> ids) const;
  std::int64_t windows_of(const TokenFile& file) const;

  std::vector<TokenFile> files_;
  std::int64_t sequence_length_;
  std::uint64_t seed_;
  std::int64_t windows_ = 0;
};

}  // namespace regroup

// A model's layers, one after the other, over the same windows of tokens: one layer is in memory at
// a time, beside the hidden states of all windows.
//
// Shapes: B windows at a time of T tokens, D hidden size.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "formats/model/model.h"
#include "formats/token_files/token_file.h"
#include "uptrain/model/block.h"
#include "uptrain/model/transformer.h"

namespace regroup {

using Batches = std::vector<at::Tensor>;

/// Which windows of a token file are read.
struct WindowSettings {
  std::int64_t context = 512;        ///< tokens in a window
  std::int64_t batch = 8;            ///< windows at a time
  std::int64_t max_tokens = 32'768;  ///< read about so many
};

/// Windows of consecutive tokens that read_windows() reads. Throws kBadInput for a file shorter
/// than one, kUsage for settings below 1.
std::int64_t count_windows(const TokenFile& data, const WindowSettings& settings);

/// Those windows, int64 [B, T] each, the last batch perhaps smaller.
Batches read_windows(const TokenFile& data, const WindowSettings& settings);

class LayerWalk {
 public:
  /// Computes in fp32 on `device`. An encoder reads the first half of each window, the decoder
  /// beside it the second. Keeps a reference to `source`.
  LayerWalk(const Model& source, const Batches& windows, c10::Device device = c10::kCPU);

  /// Goes on to the next layer: the encoder's come first. Returns false after the last.
  bool next();

  /// Runs all windows through the layer, once, and shows each attention batch by batch. Throws
  /// kInterrupted soon after `stop` turns true.
  void run(const AttentionObserver& observer, const std::atomic<bool>& stop);

  AttentionRole stack() const { return stack_; }  ///< kSelf, or kEncoder beside a decoder
  std::size_t layer() const { return layer_; }
  const Block& block() const { return *block_; }

  /// What the layer is told with batch number `batch`.
  Pass pass(std::size_t batch) const;

  /// What comes out of the layer, or before run() what goes in.
  const Batches& hidden() const { return hidden_; }

  /// What the encoder beside a decoder gave, once the decoder's first layer is reached.
  const Batches& encoded() const { return encoded_; }

 private:
  void enter_stack(AttentionRole stack, const Batches& tokens);
  void finish_encoder();

  const Model& source_;
  const ModelSpec& spec_;
  c10::Device device_;
  Transformer front_;  // embeddings, and what they are told of positions
  Batches decoder_tokens_;
  AttentionRole stack_ = AttentionRole::kSelf;
  std::size_t layer_ = 0;
  std::optional<Block> block_;
  Pass pass_;
  Batches hidden_, encoded_;
};

}  // namespace regroup

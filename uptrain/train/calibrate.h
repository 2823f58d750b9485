// Statistics of the inputs of each attention, layer by layer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "converter/heads/heads.h"
#include "formats/model/model.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/model/block.h"
#include "uptrain/model/transformer.h"
#include "uptrain/train/data_loader.h"

namespace regroup {

// Runs a model layer by layer over windows of tokens: only one layer and the hidden states of all
// windows are in memory at a time.
//
// Shapes: B windows at a time of T tokens, D hidden size.

using Batches = std::vector<at::Tensor>;

/// Which windows of a token file are read.
struct WindowSettings {
  std::int64_t context = 512;        ///< tokens in a window
  std::int64_t batch = 8;            ///< windows at a time
  std::int64_t max_tokens = 32'768;  ///< read about this many
};

/// Windows of consecutive tokens that read_windows() reads. Throws kBadInput for a file shorter
/// than one, kUsage for settings below 1.
std::int64_t count_windows(const TokenFile& data, const WindowSettings& settings);

/// Reads these windows, which are spread over the file (spread_windows()): int64 [B, T] per batch.
/// The last batch may be smaller.
Batches read_windows(const TokenFile& data, const WindowSettings& settings);

/// The attention with `heads` in place of its own, in the dtype and on the device of its output
/// projection. A norm of all keys together keeps the mean of each group's weights. `query_order`:
/// which query head of the source each was, for ALiBi's slopes.
AttentionLayer with_heads(const AttentionLayer& attention, const AttentionHeads& heads,
                          std::span<const std::int64_t> query_order);

class LayerWalk {
 public:
  /// Computes in `type` on `device`. In an encoder-decoder the encoder reads the first half of each
  /// window, the decoder the second. Keeps a reference to `source`.
  LayerWalk(const Model& source, const Batches& windows, c10::Device device = c10::kCPU,
            at::ScalarType type = at::kFloat);

  /// Advances to the next layer; encoder layers come first. Returns false after the last.
  bool next();

  /// Runs all windows through the layer once and reports each attention batch by batch. Throws
  /// kInterrupted soon after `stop` turns true.
  void run(const AttentionObserver& observer, const std::atomic<bool>& stop);

  AttentionRole stack() const { return stack_; }  ///< kSelf, or kEncoder in an encoder-decoder
  std::size_t layer() const { return layer_; }
  const Block& block() const { return *block_; }
  /// Replaces the layer until next(), for run().
  void set_block(Block block) { block_ = std::move(block); }

  /// The pass context of the layer for batch number `batch`.
  Pass pass(std::size_t batch) const;

  /// The layer's output, or before run() its input.
  const Batches& hidden() const { return hidden_; }

  /// The encoder's output in an encoder-decoder, once the decoder's first layer is reached.
  const Batches& encoded() const { return encoded_; }

 private:
  void enter_stack(AttentionRole stack, const Batches& tokens);
  void finish_encoder();

  const Model& source_;
  const ModelSpec& spec_;
  c10::Device device_;
  at::ScalarType type_;
  RelativeBuckets relative_buckets_;
  Transformer front_;  // embeddings and positions
  Batches decoder_tokens_;
  AttentionRole stack_ = AttentionRole::kSelf;
  std::size_t layer_ = 0;
  std::optional<Block> block_;
  Passes passes_;
  Batches hidden_, encoded_;
};

// Input statistics of every attention of a model over a text. Pooling methods weigh errors with
// them (converter/heads/calibration.h).

/// Writes `output`, a safetensors file that names its source model. It holds mean and covariance of
/// the inputs of each layer's attention and, if keys are rotated, the attention distances of each
/// head, as F32. In an encoder-decoder the encoder reads the first half of each window, the decoder
/// the second. The model computes in `type`; sums over tokens are fp32 for each batch, fp64 over
/// all. Holds on `device` one layer at a time, the hidden states of all windows (tokens · D
/// numbers) and two D² matrices in fp64. `output` appears when it is complete. `progress` counts
/// layers. Throws kUsage if `output` exists, kInterrupted soon after `stop` turns true.
void calibrate(const Model& source, const TokenFile& data, const WindowSettings& settings,
               c10::Device device, const std::filesystem::path& output,
               const CountProgress& progress, const std::atomic<bool>& stop,
               at::ScalarType type = at::kFloat);

}  // namespace regroup

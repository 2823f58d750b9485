// Measures how well conversions of a model keep its predictions on a text, layer by layer: one
// layer and the hidden states of the text are in memory at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"
#include "formats/token_files/token_file.h"
#include "uptrain/layerwise/layer_walk.h"

namespace regroup {

/// Windows of a token file.
struct WindowRange {
  std::int64_t first = 0;        ///< the first token
  std::int64_t windows = 1;      ///< of `context` tokens each
  std::int64_t context = 512;    ///< tokens
  std::int64_t batch = 8;        ///< windows at a time
  std::int64_t spread_over = 0;  ///< windows from all over so many; 0: consecutive ones
};

/// How a model predicts the text.
struct TextQuality {
  /// Mean loss of the model's objective, in nats per token, as evaluate() computes it. None for
  /// models without an output head and for BERT-like models whose mask token is not known.
  std::optional<double> loss;
  /// Mean cosine of the last hidden state of each token with the source's.
  double cosine = 1.0;
};

class TextQualityMeter {
 public:
  /// Computes the source in fp32 on `device`. `progress`, unless empty, is called after each layer
  /// of each model. Throws kBadInput if the part is not inside the file, for tokens outside the
  /// vocabulary, and for losses that are not finite; kInterrupted soon after `stop` turns true.
  /// Keeps references to `source` and `stop`.
  TextQualityMeter(const Model& source, const TokenFile& data, const WindowRange& part,
                   c10::Device device, const std::atomic<bool>& stop,
                   std::function<void()> progress = {});

  TextQuality of_source() const { return source_quality_; }

  /// Of a result of the source: another model for the same tokens. Throws as the constructor.
  TextQuality of(const Model& model) const;

  /// Of the source with heads pooled according to `plan`, which is not executed. The plan must have
  /// no refiner. Throws as the constructor.
  TextQuality of(const ConversionPlan& plan) const;

  /// Tokens that each model predicted; 0 if none has a loss.
  std::int64_t predicted_tokens() const;

 private:
  // The predictions of a batch: their places among its tokens (undefined: all), and the targets.
  struct Answers {
    at::Tensor positions, targets;
  };
  // Changes the block that a walk is at.
  using Change = std::function<Block(const LayerWalk& walk)>;

  void read(const TokenFile& data, const WindowRange& part);
  Batches last_hidden(const Model& model, const Change& change) const;
  TextQuality quality_of(const Model& model, const Batches& hidden) const;
  std::optional<double> loss_of(const Model& model, const Batches& hidden) const;

  const Model& source_;
  c10::Device device_;
  const std::atomic<bool>& stop_;
  std::function<void()> progress_;
  Batches windows_;
  std::vector<Answers> answers_;  // empty: no loss
  Batches source_hidden_;
  TextQuality source_quality_;
};

}  // namespace regroup

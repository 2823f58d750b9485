// Evaluates a model of speech (Whisper): the loss of given tokens for given spectra.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

#include <ATen/core/Tensor.h>

#include "formats/checkpoint/checkpoint.h"
#include "uptrain/evaluate/evaluate.h"

namespace regroup {

/// Spectra and what is said in them, in a safetensors file: `features` [N, bands, frames], log-mel
/// spectra in a floating type, and `tokens` [N, T], I64 or I32. Negative tokens at the end of a row
/// are padding.
class SpeechFile {
 public:
  /// Throws kBadInput for a file that has no such tensors, or not in the shapes that the model
  /// reads.
  SpeechFile(const std::filesystem::path& path, const ModelSpec& spec);

  std::int64_t samples() const { return features_->shape.front(); }
  std::int64_t tokens() const { return tokens_->shape.back(); }  ///< T
  const std::filesystem::path& path() const { return path_; }

  /// [count, bands, frames] from sample `first` on, in `type`; in host memory.
  at::Tensor features(std::int64_t first, std::int64_t count, at::ScalarType type) const;
  /// int64 [count, T]. Throws kBadInput for a token outside the vocabulary, and for a negative one
  /// before another token.
  at::Tensor labels(std::int64_t first, std::int64_t count) const;

 private:
  std::string rows_of(const TensorInfo& tensor, std::int64_t first, std::int64_t count) const;

  std::filesystem::path path_;
  Checkpoint checkpoint_;
  const TensorInfo* features_;
  const TensorInfo* tokens_;
  std::int64_t vocabulary_;
};

/// A model whose encoder reads spectra, for these functions. Throws kUsage for other models, and
/// what open_predicting_model() throws.
Model open_speech_model(const std::filesystem::path& path);

/// The mean loss of the file's tokens. The decoder reads the start token and then the tokens
/// before, as in transformers. Throws kInterrupted soon after `stop` turns true.
Evaluation evaluate_speech(const Transformer& model, const SpeechFile& file, std::int64_t batch,
                           const EvaluationProgress& progress, const std::atomic<bool>& stop);

/// Writes `path`, a safetensors file with F32 `logits` [N, T, V]. Throws like write_logits().
void write_speech_logits(const Transformer& model, const SpeechFile& file, std::int64_t batch,
                         const std::filesystem::path& path, const EvaluationProgress& progress,
                         const std::atomic<bool>& stop);

}  // namespace regroup

#include "uptrain/evaluate/speech.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"
#include "formats/directory/container.h"
#include "formats/dtype/element_values.h"
#include "formats/spec/spectra.h"
#include "uptrain/evaluate/logits_file.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/parameters.h"

namespace regroup {
namespace {

Checkpoint open_features(const std::filesystem::path& path) {
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_weight_file(path));
  return Checkpoint(std::move(parts));
}

// Refuses a tensor of another type, and of another shape than `shape`, in which -1 is any size.
const TensorInfo* checked(const Checkpoint& file, std::string_view name, bool allowed_type,
                          std::string_view types, const Shape& shape) {
  const TensorInfo& tensor = file.at(name);
  bool fits = tensor.shape.size() == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {
    fits = tensor.shape[i] == shape[i] || (shape[i] < 0 && tensor.shape[i] > 0);
  }
  if (!allowed_type || !fits || !tensor.contiguous()) {
    throw_bad_input("{}: {} are {} {}, {} {} are needed (-1: any)",
                    printable(file.files().front().path().string(), 0), name, name_of(tensor.dtype),
                    text_of(tensor.shape), types, text_of(shape));
  }
  return &tensor;
}

// What the decoder reads: the start token, then all tokens but the last. The model never predicts
// from padding.
at::Tensor decoder_input(const at::Tensor& labels, std::int64_t start) {
  const at::Tensor begin = at::full({labels.size(0), 1}, start, labels.options());
  return at::cat({begin, labels.narrow(1, 0, labels.size(1) - 1).clamp_min(0)}, 1);
}

at::Tensor hidden_of(const Transformer& model, const SpeechFile& file, std::int64_t first,
                     const at::Tensor& labels) {
  const at::Tensor features =
      file.features(first, labels.size(0), model.scalar_type()).to(model.device());
  const at::Tensor input = decoder_input(labels, model.spec().decoder_start_token.value());
  return model.hidden_states(features, input.to(model.device()));
}

}  // namespace

SpeechFile::SpeechFile(const std::filesystem::path& path, const ModelSpec& spec)
    : path_(path), checkpoint_(open_features(path)), vocabulary_(spec.vocab_size) {
  features_ = checked(checkpoint_, "features", is_pooling_dtype(checkpoint_.at("features").dtype),
                      "floats", {-1, spec.spectrum.bands, 2 * spec.spectrum.positions});
  const DType type = checkpoint_.at("tokens").dtype;
  tokens_ = checked(checkpoint_, "tokens", type == DType::kI64 || type == DType::kI32, "I64 or I32",
                    {samples(), -1});
  if (tokens() > spec.max_positions.value_or(tokens())) {
    throw_bad_input("{}: {} tokens for a spectrum, the decoder has {} positions",
                    printable(path.string(), 0), tokens(), *spec.max_positions);
  }
}

std::string SpeechFile::rows_of(const TensorInfo& tensor, std::int64_t first,
                                std::int64_t count) const {
  const std::uint64_t row = tensor.bytes() / static_cast<std::uint64_t>(samples());
  std::string bytes(row * static_cast<std::uint64_t>(count), '\0');
  checkpoint_.file_of(tensor).read_at(tensor.begin + row * static_cast<std::uint64_t>(first),
                                      std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

at::Tensor SpeechFile::features(std::int64_t first, std::int64_t count, at::ScalarType type) const {
  const std::string bytes = rows_of(*features_, first, count);
  return tensor_of_numbers(std::as_bytes(std::span(bytes)), features_->dtype,
                           {count, features_->shape[1], features_->shape[2]}, type);
}

at::Tensor SpeechFile::labels(std::int64_t first, std::int64_t count) const {
  const std::string bytes = rows_of(*tokens_, first, count);
  std::vector<double> numbers(static_cast<std::size_t>(count * tokens()));
  read_values(tokens_->dtype, std::as_bytes(std::span(bytes)), numbers);
  at::Tensor labels = at::empty({count, tokens()}, at::kLong);
  auto* const ids = labels.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool row_begins = i % static_cast<std::size_t>(tokens()) == 0;
    if (numbers[i] >= static_cast<double>(vocabulary_) ||
        (!row_begins && numbers[i] >= 0 && numbers[i - 1] < 0)) {
      throw_bad_input("{}: sample {}: token {} is {}", printable(path_.string(), 0),
                      first + static_cast<std::int64_t>(i) / tokens(), numbers[i],
                      numbers[i] >= static_cast<double>(vocabulary_)
                          ? fmt::format("outside the vocabulary of {}", vocabulary_)
                          : "after padding");
    }
    ids[i] = static_cast<std::int64_t>(std::max(numbers[i], -1.0));
  }
  return labels;
}

Model open_speech_model(const std::filesystem::path& path) {
  Model model = open_model(path);
  if (!model.spec.spectrum.present()) {
    throw_usage("--features: {} reads tokens, not spectra; give it --data or --text",
                printable(model.spec.architecture));
  }
  if (model.spec.not_computable == kReadsSpectra) {
    model.spec.not_computable.clear();
  }
  check_computable_model(model);
  check_predicts(model);
  return model;
}

Evaluation evaluate_speech(const Transformer& model, const SpeechFile& file, std::int64_t batch,
                           const EvaluationProgress& progress, const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  Evaluation result;
  double sum = 0.0;
  for (std::int64_t first = 0; first < file.samples(); first += batch) {
    throw_if_stopped(stop, "evaluation was stopped");
    const std::int64_t count = std::min(batch, file.samples() - first);
    const at::Tensor labels = file.labels(first, count);
    const at::Tensor asked = labels.flatten().ge(0).nonzero().flatten();
    const at::Tensor hidden = hidden_of(model, file, first, labels).flatten(0, 1);
    if (asked.numel() > 0) {
      const at::Tensor targets = labels.flatten().index_select(0, asked).to(model.device());
      const at::Tensor own = hidden.index_select(0, asked.to(model.device())).unsqueeze(0);
      sum += model.loss(own, targets).item<double>() * static_cast<double>(asked.numel());
      result.tokens += asked.numel();
    }
    call_if_given(progress, first + count, file.samples());
  }
  if (result.tokens == 0) {
    throw_bad_input("{}: all tokens are padding", printable(file.path().string(), 0));
  }
  result.loss = sum / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

void write_speech_logits(const Transformer& model, const SpeechFile& file, std::int64_t batch,
                         const std::filesystem::path& path, const EvaluationProgress& progress,
                         const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  LogitsFile logits(path, file.samples(), file.tokens(), model.lm_head().size(0));
  for (std::int64_t first = 0; first < file.samples(); first += batch) {
    throw_if_stopped(stop, "evaluation was stopped");
    const std::int64_t count = std::min(batch, file.samples() - first);
    const at::Tensor labels = file.labels(first, count);
    logits.append(model.logits(hidden_of(model, file, first, labels)), file.path(), first);
    call_if_given(progress, first + count, file.samples());
  }
  logits.publish();
}

}  // namespace regroup

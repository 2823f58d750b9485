#include "uptrain/layerwise/layer_walk.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"
#include "formats/spec/head.h"
#include "uptrain/data/spread_windows.h"
#include "uptrain/model/layers.h"
#include "uptrain/model/output_head.h"
#include "uptrain/model/parameters.h"
#include "uptrain/objective/objective.h"

namespace regroup {
namespace {

// The model without its layers.
Transformer make_front(const Model& source, c10::Device device) {
  ModelSpec front = without_head(without_layers(source.spec));
  front.final_norm = {};
  front.project_out = {};
  return {front, load_parameters(front, source.checkpoint, at::kFloat, device)};
}

}  // namespace

std::int64_t count_windows(const TokenFile& data, const WindowSettings& settings) {
  if (settings.context < 2 || settings.batch < 1 || settings.max_tokens < 1) {
    throw_usage("context must be 2 or more, batch and tokens 1 or more");
  }
  if (data.size() < settings.context) {
    throw_bad_input("{}: {} tokens, a context of {} needs as many",
                    printable(data.path().string(), 0), data.size(), settings.context);
  }
  return std::min(data.size() / settings.context, (settings.max_tokens - 1) / settings.context + 1);
}

Batches read_windows(const TokenFile& data, const WindowSettings& settings) {
  const std::int64_t windows = count_windows(data, settings);
  const std::int64_t context = settings.context;
  Batches batches;
  const std::vector<std::int64_t> numbers = spread_windows(data.size() / context, windows);
  for (std::int64_t first = 0; first < windows; first += settings.batch) {
    const std::int64_t count = std::min(settings.batch, windows - first);
    at::Tensor ids = at::empty({count, context}, at::kLong);
    auto* next = ids.mutable_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < count; ++row, next += context) {
      data.read(numbers[static_cast<std::size_t>(first + row)] * context,
                {next, static_cast<std::size_t>(context)});
    }
    batches.push_back(std::move(ids));
  }
  return batches;
}

LayerWalk::LayerWalk(const Model& source, const Batches& windows, c10::Device device)
    : source_(source),
      spec_(source.spec),
      device_(device),
      relative_buckets_(source.spec.relative_bias),
      front_(make_front(source, device)) {
  const at::NoGradGuard no_gradients;
  if (!spec_.has_encoder()) {
    enter_stack(AttentionRole::kSelf, windows);
    return;
  }
  Batches sources;
  for (const at::Tensor& window : windows) {
    const Halves halves = split_halves(window, spec_.decoder_start_token.value_or(0));
    sources.push_back(halves.source);
    decoder_tokens_.push_back(halves.target);
  }
  enter_stack(AttentionRole::kEncoder, sources);
}

void LayerWalk::enter_stack(AttentionRole stack, const Batches& tokens) {
  stack_ = stack;
  layer_ = 0;
  hidden_.clear();
  for (const at::Tensor& ids : tokens) {
    hidden_.push_back(front_.embed(ids.to(device_), 0, stack));
  }
  passes_ = front_.make_passes(tokens.front().size(1));
  passes_.in_window.causal = passes_.whole.causal = stack == AttentionRole::kSelf && spec_.causal;
}

bool LayerWalk::next() {
  const at::NoGradGuard no_gradients;
  layer_ = block_ ? layer_ + 1 : 0;
  if (stack_ == AttentionRole::kEncoder && layer_ == spec_.encoder_layers.size()) {
    finish_encoder();
    enter_stack(AttentionRole::kSelf, decoder_tokens_);
  }
  block_.reset();  // frees one layer before the next is loaded
  if (layer_ == spec_.stack(stack_).size()) {
    return false;
  }
  block_ = make_block(
      spec_, stack_, layer_,
      load_layer_parameters(spec_, stack_, layer_, source_.checkpoint, at::kFloat, device_));
  Pass& pass = passes_.of(*block_);
  bring_bias(pass, *block_, relative_buckets_, hidden_.front().size(1), pass.causal,
             hidden_.front().options());
  return true;
}

Pass LayerWalk::pass(std::size_t batch) const {
  Pass pass = passes_.of(*block_);
  if (stack_ == AttentionRole::kSelf && !encoded_.empty()) {
    pass.encoded = encoded_[batch];
  }
  return pass;
}

void LayerWalk::run(const AttentionObserver& observer, const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  const StopScope scope(&stop);
  for (std::size_t i = 0; i < hidden_.size(); ++i) {
    check_stop();
    Pass told = pass(i);
    told.on_attention = observer;
    hidden_[i] = run_block(*block_, spec_, hidden_[i], told);
  }
}

// Computes the encoder's output, which is an input of the decoder.
void LayerWalk::finish_encoder() {
  const bool normalised = spec_.encoder_final_norm.present() || spec_.norm_without_parameters;
  const Norm norm = make_norm(
      spec_.encoder_final_norm, spec_,
      load_norm_parameters(spec_.encoder_final_norm, source_.checkpoint, at::kFloat, device_));
  encoded_ = std::move(hidden_);
  for (at::Tensor& batch : encoded_) {
    batch = normalised ? norm(batch) : batch;
  }
}

}  // namespace regroup

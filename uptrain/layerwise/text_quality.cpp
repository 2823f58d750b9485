// Shapes: B windows of T tokens, N predictions, D hidden size.
#include "uptrain/layerwise/text_quality.h"

#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "converter/execute/execute_plan.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/data/spread_windows.h"
#include "uptrain/layerwise/attention_fit.h"
#include "uptrain/model/output_head.h"
#include "uptrain/objective/objective.h"
#include "uptrain/ops/loss.h"

namespace regroup {
namespace {

std::vector<std::int64_t> numbers_of_windows(const WindowRange& part) {
  if (part.spread_over > 0) {
    return spread_windows(part.spread_over, part.windows);
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(part.windows));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// int64 [numbers, width]: the windows of these numbers, which begin part.context tokens apart.
at::Tensor read_ids(const TokenFile& data, const WindowRange& part,
                    std::span<const std::int64_t> numbers, std::int64_t width) {
  at::Tensor ids = at::empty({std::ssize(numbers), width}, at::kLong);
  std::int64_t* row = ids.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t number : numbers) {
    data.read(part.first + number * part.context, {row, static_cast<std::size_t>(width)});
    row += width;
  }
  return ids;
}

AttentionLayer with_heads(const AttentionLayer& attention, AttentionPooler& pooler,
                          const HeadOrder& order, AttentionRole role, const LayerWalk& walk) {
  const AttentionHeads& heads = pooler.layer(role, walk.layer());
  const std::vector<std::int64_t> queries = order.heads(role, walk.layer(), heads.query_heads);
  const c10::Device device = walk.hidden().front().device();
  const at::Tensor query_order =
      at::tensor(at::ArrayRef<std::int64_t>(queries.data(), queries.size())).to(device);
  return AttentionFit(heads, attention, query_order, device).attention();
}

}  // namespace

TextQualityMeter::TextQualityMeter(const Model& source, const TokenFile& data,
                                   const WindowRange& part, c10::Device device,
                                   const std::atomic<bool>& stop, std::function<void()> progress)
    : source_(source), device_(device), stop_(stop), progress_(std::move(progress)) {
  const at::NoGradGuard no_gradients;
  data.check_vocabulary(source.spec.vocab_size);
  read(data, part);
  source_hidden_ = last_hidden(source, {});
  source_quality_ = quality_of(source, source_hidden_);
}

void TextQualityMeter::read(const TokenFile& data, const WindowRange& part) {
  const std::optional<Task> task = evaluation_task(source_, part.context);
  const std::int64_t width = task ? window_width(task->objective, part.context) : part.context;
  const std::vector<std::int64_t> numbers = numbers_of_windows(part);
  for (std::int64_t first = 0; first < part.windows; first += part.batch) {
    const auto count = static_cast<std::size_t>(std::min(part.batch, part.windows - first));
    const at::Tensor ids = read_ids(
        data, part, std::span(numbers).subspan(static_cast<std::size_t>(first), count), width);
    if (!task) {
      windows_.push_back(ids);
      continue;
    }
    const TaskBatch batch = make_task_batch(ids, first, *task, source_.spec);
    // A walk over an encoder-decoder splits the windows itself.
    windows_.push_back(source_.spec.has_encoder() ? ids : batch.tokens);
    answers_.push_back({batch.positions, batch.targets});
  }
}

Batches TextQualityMeter::last_hidden(const Model& model, const Change& change) const {
  LayerWalk walk(model, windows_, device_);
  while (walk.next()) {
    if (change) {
      walk.set_block(change(walk));
    }
    walk.run({}, stop_);
    call_if_given(progress_);
  }
  return walk.hidden();
}

std::optional<double> TextQualityMeter::loss_of(const Model& model, const Batches& hidden) const {
  if (answers_.empty()) {
    return std::nullopt;
  }
  const OutputHead head(model, device_);
  double sum = 0.0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const auto& [positions, targets] = answers_[i];
    const at::Tensor all = hidden[i].flatten(0, 1);  // [B·T, D]
    const at::Tensor predicting =
        positions.defined() ? all.index_select(0, positions.to(device_)) : all;
    const LmHeadInputs inputs = head.lm_head_inputs(predicting.unsqueeze(0));
    sum += next_token_loss(inputs, targets.to(device_)).item<double>() *
           static_cast<double>(targets.numel());
  }
  const double loss = sum / static_cast<double>(predicted_tokens());
  if (!std::isfinite(loss)) {
    throw_bad_input("{}: the loss on the held-out text is {}: NaN or infinity in the weights",
                    printable(model.path.string(), 0), loss);
  }
  return loss;
}

TextQuality TextQualityMeter::quality_of(const Model& model, const Batches& hidden) const {
  TextQuality quality{loss_of(model, hidden)};
  double sum = 0.0, tokens = 0.0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const at::Tensor cosines = at::cosine_similarity(hidden[i], source_hidden_[i], -1);  // [B, T]
    sum += cosines.sum(at::kDouble).item<double>();
    tokens += static_cast<double>(cosines.numel());
  }
  quality.cosine = sum / tokens;
  return quality;
}

TextQuality TextQualityMeter::of(const Model& model) const {
  const at::NoGradGuard no_gradients;
  return quality_of(model, last_hidden(model, {}));
}

TextQuality TextQualityMeter::of(const ConversionPlan& plan) const {
  const at::NoGradGuard no_gradients;
  AttentionPooler pooler = pooler_of(plan, source_.checkpoint, &stop_);
  const Batches hidden = last_hidden(source_, [&](const LayerWalk& walk) {
    const auto changes = [&](AttentionRole role) {
      return plan.spec.attention(role, walk.layer()).present() &&
             plan.spec.kv_heads_of(role)[walk.layer()] !=
                 plan.grouped.kv_heads_of(role)[walk.layer()];
    };
    Block block = walk.block();
    if (changes(walk.stack())) {
      block.attention = with_heads(block.attention, pooler, plan.order, walk.stack(), walk);
    }
    if (walk.stack() == AttentionRole::kSelf && plan.spec.has_encoder() &&
        changes(AttentionRole::kCross)) {
      block.cross = with_heads(block.cross, pooler, plan.order, AttentionRole::kCross, walk);
    }
    return block;
  });
  return quality_of(source_, hidden);
}

std::int64_t TextQualityMeter::predicted_tokens() const {
  std::int64_t tokens = 0;
  for (const Answers& answers : answers_) {
    tokens += answers.targets.numel();
  }
  return tokens;
}

}  // namespace regroup

#include "uptrain/objective/objective.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "uptrain/model/upload.h"
#include "uptrain/ops/permutation.h"

namespace regroup {
namespace {

std::int64_t masked_in(std::int64_t context) {
  return std::max<std::int64_t>(1, context * 15 / 100);
}

// The replacement of a chosen token. `draw` is a hash.
std::int64_t replacement(std::int64_t token, std::uint64_t draw, std::int64_t mask,
                         std::int64_t vocab_size) {
  const std::uint64_t tenth = draw % 10;
  if (tenth < 8) {
    return mask;
  }
  return tenth == 8 ? static_cast<std::int64_t>(draw / 10 % static_cast<std::uint64_t>(vocab_size))
                    : token;
}

TaskBatch next_token_batch(const at::Tensor& ids) {
  const std::int64_t context = ids.size(1) - 1;
  const at::Tensor targets = ids.narrow(1, 1, context).flatten();
  if (targets.ge(0).all().item<bool>()) {
    return {ids.narrow(1, 0, context), {}, {}, targets};
  }
  const at::Tensor asked = targets.ge(0).nonzero().flatten();
  // Places without text (negative ids) may hold any token, since no prediction depends on them.
  return {ids.clamp_min(0).narrow(1, 0, context), {}, asked, targets.index_select(0, asked)};
}

}  // namespace

std::int64_t window_width(Objective objective, std::int64_t context) {
  return objective == Objective::kNextToken ? context + 1 : context;
}

std::int64_t predictions_in(const Task& task, std::int64_t context) {
  switch (task.objective) {
    case Objective::kMaskedTokens: return masked_in(context);
    case Objective::kContinuation: return context - context / 2;
    case Objective::kSpanCorruption:
      return span_counts(context, task.spans.end_token.has_value()).target;
    case Objective::kTextInfilling:
      return infilling_counts(context, task.infilling.end_token.has_value()).target;
    case Objective::kNextToken: break;
  }
  return context;
}

MaskedTokens mask_tokens(const at::Tensor& ids, std::int64_t first, const Masking& masking,
                         std::int64_t vocab_size) {
  const std::int64_t windows = ids.size(0);
  const std::int64_t context = ids.size(1);
  const std::int64_t each = masked_in(context);
  MaskedTokens result{ids.clone(), at::empty({windows * each}, at::kLong), {}};
  auto* token = result.ids.mutable_data_ptr<std::int64_t>();
  auto* position = result.positions.mutable_data_ptr<std::int64_t>();
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto stream = static_cast<std::uint64_t>(first + window);
    const Permutation order(context, masking.seed, stream);
    for (std::int64_t i = 0; i < each; ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      const auto at = window * context + static_cast<std::int64_t>(order(index));
      token[at] =
          replacement(token[at], mix(mix(~masking.seed, stream), index), masking.token, vocab_size);
      *position++ = at;
    }
  }
  result.targets = ids.flatten().index_select(0, result.positions);
  return result;
}

Halves split_halves(const at::Tensor& ids, std::int64_t start_token) {
  const std::int64_t source = ids.size(1) / 2;
  const std::int64_t target = ids.size(1) - source;
  const at::Tensor start = at::full({ids.size(0), 1}, start_token, ids.options());
  return {ids.narrow(1, 0, source), at::cat({start, ids.narrow(1, source, target - 1)}, 1),
          ids.narrow(1, source, target)};
}

TaskBatch make_task_batch(const at::Tensor& ids, std::int64_t first, const Task& task,
                          const ModelSpec& spec) {
  const std::int64_t start_token = spec.decoder_start_token.value_or(0);
  switch (task.objective) {
    case Objective::kMaskedTokens: {
      const MaskedTokens masked = mask_tokens(ids, first, task.masking, spec.vocab_size);
      return {masked.ids, {}, masked.positions, masked.targets};
    }
    case Objective::kContinuation: {
      const Halves halves = split_halves(ids, start_token);
      return {halves.source, halves.target, {}, halves.answers.flatten()};
    }
    case Objective::kSpanCorruption: {
      const CorruptedText text = corrupt_spans(ids, first, task.spans, start_token);
      return {text.source, text.target, {}, text.answers.flatten()};
    }
    case Objective::kTextInfilling: {
      const CorruptedText text = infill_text(ids, first, task.infilling, start_token);
      return {text.source, text.target, {}, text.answers.flatten()};
    }
    case Objective::kNextToken: break;
  }
  return next_token_batch(ids);
}

at::Tensor part_of_windows(const at::Tensor& ids, const SequencePart* part) {
  if (part == nullptr) {
    return ids;
  }
  const std::int64_t length = (ids.size(1) - 1) / part->parts();
  return ids.narrow(1, part->first(length), length + 1);
}

TaskBatch uploaded(const TaskBatch& batch, at::Device device,
                   const std::vector<at::Tensor*>& others) {
  std::vector<at::Tensor> tensors = {batch.tokens, batch.decoder_tokens, batch.positions,
                                     batch.targets};
  for (const at::Tensor* other : others) {
    tensors.push_back(*other);
  }
  const std::vector<at::Tensor> there = upload(tensors, device);
  for (std::size_t i = 0; i < others.size(); ++i) {
    *others[i] = there[4 + i];
  }
  return {there[0], there[1], there[2], there[3]};
}

Predictions predict(const Transformer& model, const TaskBatch& batch) {
  const at::Tensor states = batch.decoder_tokens.defined()
                                ? model.hidden_states(batch.tokens, batch.decoder_tokens)
                                : model.hidden_states(batch.tokens);
  const at::Tensor hidden = states.flatten(0, 1);  // [B·C, D]
  return {
      (batch.positions.defined() ? hidden.index_select(0, batch.positions) : hidden).unsqueeze(0),
      batch.targets};
}

Predictions predict(const Transformer& model, const at::Tensor& ids, std::int64_t first,
                    const Task& task) {
  return predict(model, uploaded(make_task_batch(ids, first, task, model.spec()), model.device()));
}

at::Tensor window_logits(const Transformer& model, const at::Tensor& ids) {
  if (objective_of(model.spec()) == Objective::kContinuation) {
    const Halves halves = split_halves(ids, model.spec().decoder_start_token.value_or(0));
    return model.logits(model.hidden_states(halves.source, halves.target));
  }
  return model.logits(model.hidden_states(ids));
}

}  // namespace regroup

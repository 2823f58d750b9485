#include "uptrain/objective.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "uptrain/permutation.h"

namespace regroup {
namespace {

std::int64_t masked_in(std::int64_t context) {
  return std::max<std::int64_t>(1, context * 15 / 100);
}

// What stands in the place of a chosen token. `draw` is a well mixed number.
std::int64_t replacement(std::int64_t token, std::uint64_t draw, std::int64_t mask,
                         std::int64_t vocab_size) {
  const std::uint64_t tenth = draw % 10;
  if (tenth < 8) {
    return mask;
  }
  return tenth == 8 ? static_cast<std::int64_t>(draw / 10 % static_cast<std::uint64_t>(vocab_size))
                    : token;
}

}  // namespace

std::string_view name_of(Objective objective) {
  switch (objective) {
    case Objective::kNextToken: return "next_token";
    case Objective::kMaskedTokens: return "masked_tokens";
    case Objective::kContinuation: return "continuation";
  }
  return "next_token";
}

Objective objective_of(const ModelSpec& spec) {
  if (spec.has_encoder()) {
    return Objective::kContinuation;
  }
  return spec.causal ? Objective::kNextToken : Objective::kMaskedTokens;
}

std::int64_t window_width(Objective objective, std::int64_t context) {
  return objective == Objective::kNextToken ? context + 1 : context;
}

std::int64_t predictions_in(Objective objective, std::int64_t context) {
  switch (objective) {
    case Objective::kMaskedTokens: return masked_in(context);
    case Objective::kContinuation: return context - context / 2;
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

Predictions predict(const Transformer& model, const at::Tensor& ids, std::int64_t first,
                    const Masking& masking) {
  const at::Device device = model.device();
  switch (objective_of(model.spec())) {
    case Objective::kMaskedTokens: {
      const MaskedTokens masked = mask_tokens(ids, first, masking, model.spec().vocab_size);
      const at::Tensor hidden = model.hidden_states(masked.ids.to(device)).flatten(0, 1);
      return {hidden.index_select(0, masked.positions.to(device)).unsqueeze(0),
              masked.targets.to(device)};
    }
    case Objective::kContinuation: {
      const Halves halves =
          split_halves(ids.to(device), model.spec().decoder_start_token.value_or(0));
      const at::Tensor hidden = model.hidden_states(halves.source, halves.target);
      return {hidden.flatten(0, 1).unsqueeze(0), halves.answers.flatten()};
    }
    case Objective::kNextToken: break;
  }
  const at::Tensor text = ids.to(device);
  const std::int64_t context = text.size(1) - 1;
  const at::Tensor hidden = model.hidden_states(text.narrow(1, 0, context));
  return {hidden.flatten(0, 1).unsqueeze(0), text.narrow(1, 1, context).flatten()};
}

at::Tensor window_logits(const Transformer& model, const at::Tensor& ids) {
  if (objective_of(model.spec()) == Objective::kContinuation) {
    const Halves halves = split_halves(ids, model.spec().decoder_start_token.value_or(0));
    return model.logits(model.hidden_states(halves.source, halves.target));
  }
  return model.logits(model.hidden_states(ids));
}

}  // namespace regroup

#include "uptrain/train/objective.h"

#include <algorithm>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/device.h"
#include "uptrain/ops/expert_routing.h"

namespace regroup {

namespace {

// In the order of Objective.
constexpr std::string_view kObjectives[] = {"next-token", "masked-tokens", "continuation",
                                            "span-corruption", "text-infilling"};

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
    case Objective::kTextInfilling: return counts_of(task, context).target;
    case Objective::kNextToken: break;
  }
  return context;
}

SpanCounts counts_of(const Task& task, std::int64_t context) {
  const bool ends = task.hiding.end_token.has_value();
  return task.objective == Objective::kTextInfilling ? infilling_counts(context, ends)
                                                     : span_counts(context, ends);
}

TaskBatch mask_tokens(const at::Tensor& ids, std::int64_t first, const Hiding& hiding,
                      std::int64_t vocab_size) {
  const std::int64_t windows = ids.size(0);
  const std::int64_t context = ids.size(1);
  const std::int64_t each = masked_in(context);
  TaskBatch result{ids.clone(), {}, at::empty({windows * each}, at::kLong), {}};
  auto* token = result.tokens.mutable_data_ptr<std::int64_t>();
  auto* position = result.positions.mutable_data_ptr<std::int64_t>();
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto stream = static_cast<std::uint64_t>(first + window);
    const Permutation order(context, hiding.seed, stream);
    for (std::int64_t i = 0; i < each; ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      const auto at = window * context + static_cast<std::int64_t>(order(index));
      token[at] =
          replacement(token[at], mix(mix(~hiding.seed, stream), index), hiding.token, vocab_size);
      *position++ = at;
    }
  }
  result.targets = ids.flatten().index_select(0, result.positions);
  return result;
}

TextPair split_halves(const at::Tensor& ids, std::int64_t start_token) {
  const std::int64_t source = ids.size(1) / 2;
  const at::Tensor answers = ids.narrow(1, source, ids.size(1) - source);
  return {ids.narrow(1, 0, source), shifted_right(answers, start_token), answers};
}

TaskBatch make_task_batch(const at::Tensor& ids, std::int64_t first, const Task& task,
                          const ModelSpec& spec) {
  const std::int64_t start_token = spec.decoder_start_token.value_or(0);
  const auto batch_of = [](const TextPair& text) {
    return TaskBatch{text.source, text.target, {}, text.answers.flatten()};
  };
  switch (task.objective) {
    case Objective::kMaskedTokens: return mask_tokens(ids, first, task.hiding, spec.vocab_size);
    case Objective::kContinuation: return batch_of(split_halves(ids, start_token));
    case Objective::kSpanCorruption:
      return batch_of(corrupt_spans(ids, first, task.hiding, start_token));
    case Objective::kTextInfilling:
      return batch_of(infill_text(ids, first, task.hiding, start_token));
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
    const TextPair halves = split_halves(ids, model.spec().decoder_start_token.value_or(0));
    return model.logits(model.hidden_states(halves.source, halves.target));
  }
  return model.logits(model.hidden_states(ids));
}

// Which objective a model supports, and its special tokens.

namespace {

void check_token(std::string_view what, std::int64_t token, const ModelSpec& spec) {
  if (token < 0 || token >= spec.vocab_size) {
    throw_usage("{} {} is outside the vocabulary of {} tokens", what, token, spec.vocab_size);
  }
}

std::int64_t mask_token_of(Objective objective, const TaskSettings& settings,
                           const ModelSpec& spec) {
  const auto token = settings.mask_token ? settings.mask_token : spec.mask_token;
  if (!token) {
    throw_usage("{}",
                objective == Objective::kMaskedTokens
                    ? "the config has no mask_token_id, so --mask-token is needed: 103 in BERT's "
                      "vocabularies, 50264 in RoBERTa's"
                    : "no tokenizer file names <mask>, so --mask-token is needed: 50264 in BART's "
                      "vocabularies, 250026 in mBART's, 250053 in mBART-50's");
  }
  check_token("mask token", *token, spec);
  return *token;
}

std::int64_t first_sentinel_of(const TaskSettings& settings, const ModelSpec& spec) {
  if (!settings.sentinels) {
    throw_usage(
        "no tokenizer file names <extra_id_0>, so --first-sentinel is needed: 32099 in T5's "
        "vocabularies, 250099 in mT5's");
  }
  check_token("first sentinel", settings.sentinels->first, spec);
  return settings.sentinels->first;
}

void check_enough(const Sentinels& sentinels, std::int64_t context) {
  const std::int64_t spans = span_counts(context, false).spans;
  const std::int64_t available = std::min(sentinels.count, sentinels.first + 1);
  if (spans > available) {
    throw_usage("windows of {} tokens have {} hidden spans, allowed are {}: one per sentinel",
                context, spans, available);
  }
}

Hiding make_hiding(Objective objective, const TaskSettings& settings, const ModelSpec& spec,
                   std::int64_t context) {
  const bool by_sentinels = objective == Objective::kSpanCorruption;
  Hiding hiding{.token = by_sentinels ? first_sentinel_of(settings, spec)
                                      : mask_token_of(objective, settings, spec),
                .seed = settings.seed};
  if (hides_spans(objective) && settings.end_token) {
    check_token("end token", *settings.end_token, spec);
    hiding.end_token = settings.end_token;
  }
  if (by_sentinels) {
    check_enough(*settings.sentinels, context);
  }
  return hiding;
}

// An encoder-decoder with a table of positions reads at most as many tokens in each stack.
void check_lengths(const Task& task, const ModelSpec& spec, std::int64_t context) {
  if (!spec.has_encoder() || !spec.has_position_table() ||
      task.objective != Objective::kTextInfilling) {
    return;
  }
  const std::int64_t target = predictions_in(task, context);
  if (target > spec.max_positions.value_or(target)) {
    throw_usage("context is {}: the decoder reads {} tokens, the model has {} positions for {}",
                context, target, name_of(spec.positions), *spec.max_positions);
  }
}

}  // namespace

std::string_view name_of(Objective objective) {
  return kObjectives[static_cast<std::size_t>(objective)];
}

Objective parse_objective(std::string_view text) {
  std::string name(text);
  std::ranges::replace(name, '_', '-');
  const auto* found = std::ranges::find(kObjectives, name);
  if (found == std::end(kObjectives)) {
    throw_usage(
        "objective is \"{}\", allowed are next-token, masked-tokens, continuation, "
        "span-corruption and text-infilling",
        printable(text));
  }
  return static_cast<Objective>(found - kObjectives);
}

bool hides_spans(Objective objective) {
  return objective == Objective::kSpanCorruption || objective == Objective::kTextInfilling;
}

Objective objective_of(const ModelSpec& spec) {
  if (spec.has_encoder()) {
    return Objective::kContinuation;
  }
  return spec.causal ? Objective::kNextToken : Objective::kMaskedTokens;
}

Objective training_objective_of(const ModelSpec& spec) {
  if (!spec.has_encoder()) {
    return objective_of(spec);
  }
  switch (spec.denoising) {
    case Denoising::kSpanCorruption: return Objective::kSpanCorruption;
    case Denoising::kTextInfilling: return Objective::kTextInfilling;
    case Denoising::kNone: break;
  }
  throw_usage(
      "{} was not trained on plain text, so no objective is the usual one: pass --objective "
      "continuation (the second half of each window given the first)",
      printable(spec.architecture));
}

std::optional<Task> evaluation_task(const Model& model, std::int64_t context) {
  const TaskSettings settings = with_special_tokens({}, model);
  const Objective objective = objective_of(model.spec);
  if (!model.missing_head.empty() ||
      (objective == Objective::kMaskedTokens && !settings.mask_token && !model.spec.mask_token)) {
    return std::nullopt;
  }
  return make_task(settings, model.spec, objective, context);
}

Task make_task(const TaskSettings& settings, const ModelSpec& spec, Objective otherwise,
               std::int64_t context) {
  Task task{.objective = settings.objective.value_or(otherwise)};
  const bool two_texts = task.objective == Objective::kContinuation || hides_spans(task.objective);
  if (spec.has_encoder() != two_texts || (!two_texts && task.objective != objective_of(spec))) {
    throw_usage("objective is {}, a model such as {} supports {} only", name_of(task.objective),
                printable(spec.architecture),
                spec.has_encoder() ? "continuation, span-corruption and text-infilling"
                                   : name_of(objective_of(spec)));
  }
  if (two_texts && context < 2) {
    throw_usage("context is {}, an encoder-decoder needs 2 tokens or more", context);
  }
  if (task.objective == Objective::kMaskedTokens || hides_spans(task.objective)) {
    task.hiding = make_hiding(task.objective, settings, spec, context);
  }
  check_lengths(task, spec, context);
  return task;
}

Task make_training_task(const TaskSettings& settings, const ModelSpec& spec, std::int64_t context) {
  const Objective otherwise =
      settings.objective ? *settings.objective : training_objective_of(spec);
  return make_task(settings, spec, otherwise, context);
}

void check_documents(const DocumentSettings& documents, const Task& task) {
  if (documents.separate && task.objective != Objective::kNextToken) {
    throw_usage("documents can be kept apart for next-token only, the objective is {}",
                name_of(task.objective));
  }
}

TaskSettings with_special_tokens(TaskSettings settings, const Model& model) {
  if (!model.spec.has_encoder()) {
    return settings;
  }
  if (!settings.sentinels) {
    settings.sentinels = find_sentinels(model.path);
  }
  if (!settings.mask_token && !model.spec.mask_token) {
    settings.mask_token = find_mask_token(model.path);
  }
  if (!settings.end_token) {
    settings.end_token = end_token_of(model);
  }
  return settings;
}

}  // namespace regroup

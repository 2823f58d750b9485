// Which objective a model supports, and its special tokens.
#include <algorithm>
#include <string>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/objective/objective.h"

namespace regroup {
namespace {

void check_token(std::string_view what, std::int64_t token, const ModelSpec& spec) {
  if (token < 0 || token >= spec.vocab_size) {
    throw_usage("{} {} is outside the vocabulary of {} tokens", what, token, spec.vocab_size);
  }
}

Masking make_masking(const TaskSettings& settings, const ModelSpec& spec) {
  const auto token = settings.mask_token ? settings.mask_token : spec.mask_token;
  if (!token) {
    throw_usage(
        "the config has no mask_token_id, so --mask-token is needed: 103 in BERT's vocabularies, "
        "50264 in RoBERTa's");
  }
  check_token("mask token", *token, spec);
  return {*token, settings.seed};
}

SpanCorruption make_span_corruption(const TaskSettings& settings, const ModelSpec& spec,
                                    std::int64_t context) {
  if (!settings.sentinels) {
    throw_usage(
        "no tokenizer file names <extra_id_0>, so --first-sentinel is needed: 32099 in T5's "
        "vocabularies, 250099 in mT5's");
  }
  const Sentinels& sentinels = *settings.sentinels;
  check_token("first sentinel", sentinels.first, spec);
  if (settings.end_token) {
    check_token("end token", *settings.end_token, spec);
  }
  const std::int64_t spans = span_counts(context, false).spans;
  const std::int64_t available = std::min(sentinels.count, sentinels.first + 1);
  if (spans > available) {
    throw_usage("sequences of {} tokens have {} hidden spans, allowed are {}: one per sentinel",
                context, spans, available);
  }
  return {sentinels.first, settings.end_token, settings.seed};
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

TextInfilling make_infilling(const TaskSettings& settings, const ModelSpec& spec) {
  const auto token = settings.mask_token ? settings.mask_token : spec.mask_token;
  if (!token) {
    throw_usage(
        "no tokenizer file names <mask>, so --mask-token is needed: 50264 in BART's "
        "vocabularies, 250026 in mBART's, 250053 in mBART-50's");
  }
  check_token("mask token", *token, spec);
  if (settings.end_token) {
    check_token("end token", *settings.end_token, spec);
  }
  return {*token, settings.end_token, settings.seed};
}

bool needs_encoder(Objective objective) {
  return objective == Objective::kContinuation || objective == Objective::kSpanCorruption ||
         objective == Objective::kTextInfilling;
}

}  // namespace

std::string_view name_of(Objective objective) {
  switch (objective) {
    case Objective::kNextToken: return "next_token";
    case Objective::kMaskedTokens: return "masked_tokens";
    case Objective::kContinuation: return "continuation";
    case Objective::kSpanCorruption: return "span_corruption";
    case Objective::kTextInfilling: return "text_infilling";
  }
  return "next_token";
}

Objective parse_objective(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const Objective objective :
       {Objective::kNextToken, Objective::kMaskedTokens, Objective::kContinuation,
        Objective::kSpanCorruption, Objective::kTextInfilling}) {
    if (name == name_of(objective)) {
      return objective;
    }
  }
  throw_usage(
      "objective is \"{}\", allowed are next-token, masked-tokens, continuation, "
      "span-corruption and text-infilling",
      printable(text));
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
      "continuation (the second half of each sequence given the first)",
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
  const bool two_texts = needs_encoder(task.objective);
  if (spec.has_encoder() != two_texts || (!two_texts && task.objective != objective_of(spec))) {
    throw_usage("objective is {}, a model such as {} supports {} only", name_of(task.objective),
                printable(spec.architecture),
                spec.has_encoder() ? "continuation, span_corruption and text_infilling"
                                   : name_of(objective_of(spec)));
  }
  if (two_texts && context < 2) {
    throw_usage("context is {}, an encoder-decoder needs 2 tokens or more", context);
  }
  if (task.objective == Objective::kMaskedTokens) {
    task.masking = make_masking(settings, spec);
  } else if (task.objective == Objective::kSpanCorruption) {
    task.spans = make_span_corruption(settings, spec, context);
  } else if (task.objective == Objective::kTextInfilling) {
    task.infilling = make_infilling(settings, spec);
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
    throw_usage("documents can be kept apart for next_token only, the objective is {}",
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

#include "formats/model/record_words.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/printable.h"

namespace regroup {

namespace {

using Runs = std::vector<std::pair<std::int64_t, std::size_t>>;  // heads and layers

Runs runs_of(const std::vector<std::int64_t>& heads) {
  Runs runs;
  for (const std::int64_t count : heads) {
    if (runs.empty() || runs.back().first != count) {
      runs.emplace_back(count, 0);
    }
    ++runs.back().second;
  }
  return runs;
}

}  // namespace

std::string plain_count(const std::optional<std::uint64_t>& count) {
  return count ? fmt::format("{}", fmt::group_digits(*count)) : std::string(kNotRecorded);
}

std::string plain_loss(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : std::string(kNotRecorded);
}

std::string range_of_heads(const std::vector<std::int64_t>& heads) {
  std::vector<std::int64_t> present = heads;
  std::erase(present, 0);
  if (present.empty()) {
    return "0";
  }
  const std::int64_t least = std::ranges::min(present), most = std::ranges::max(present);
  const bool only_these = std::ranges::all_of(
      present, [&](std::int64_t count) { return count == least || count == most; });
  return least == most ? fmt::format("{}", most)
                       : fmt::format("{} {} {}", least, only_these ? "or" : "to", most);
}

std::string text_of_heads(const std::vector<std::int64_t>& heads, std::string_view unit) {
  constexpr std::size_t kMostRuns = 3;  // more are counted
  Runs runs = runs_of(heads);
  const bool counted = runs.size() > kMostRuns;
  if (counted) {
    std::vector<std::int64_t> sorted = heads;
    std::ranges::sort(sorted, std::greater());
    runs = runs_of(sorted);
  }
  std::size_t layer = 0;
  std::string text;
  for (const auto& [count, layers] : runs) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", count);
    if (text == std::to_string(count) && !unit.empty()) {
      text += fmt::format(" {}{}", unit, count == 1 ? "" : "s");
    }
    if (runs.size() > 1) {
      const std::size_t last = layer + layers - 1;
      text += counted       ? fmt::format(" in {} layer{}", layers, layers == 1 ? "" : "s")
              : layers == 1 ? fmt::format(" in layer {}", layer)
                            : fmt::format(" in layers {}-{}", layer, last);
    }
    layer += layers;
  }
  return text;
}

std::string plain_heads(const std::optional<KvHeads>& heads, std::string_view unit) {
  constexpr std::uint64_t kMostHeads = 1U << 20;  // a stranger's number may be larger
  std::vector<std::string> texts;
  const KvHeads roles = heads.value_or(KvHeads());
  for (const auto& [role, counts] : roles) {
    const bool last = role == roles.back().first;
    const bool sane = counts.empty() || std::ranges::max(counts) <= kMostHeads;
    texts.push_back(
        fmt::format("{}{}{}", role, role.empty() ? "" : " ",
                    sane ? text_of_heads({counts.begin(), counts.end()}, last ? unit : "")
                         : std::string(kNotRecorded)));
  }
  return heads ? fmt::format("{}", fmt::join(texts, ", ")) : std::string(kNotRecorded);
}

std::string text_of_training(const TrainingRecord& training) {
  std::string text =
      fmt::format("trained in {} step{} on {} tokens", plain_count(training.steps),
                  training.steps == std::uint64_t{1} ? "" : "s", plain_count(training.tokens));
  if (training.eval_loss) {
    text += fmt::format(", held-out loss {} to {}", plain_loss(training.eval_loss_before),
                        plain_loss(training.eval_loss));
  }
  return text;
}

namespace {

// The steps that led to a model: a list, whose first entry may be the number of older steps.
constexpr std::string_view kLeftOutKey = "left_out";
constexpr std::size_t kMostSteps = 32;
constexpr std::size_t kMostHistoryBytes = 64U << 10;

bool stands_for_older_steps(const Json& step) { return !member_of(step, kLeftOutKey).is_null(); }

// Nothing if it is damaged.
std::optional<std::uint64_t> left_out_of(const Json& step) {
  const Json& count = member_of(step, kLeftOutKey);
  return count.is_number_unsigned() ? std::optional(count.get<std::uint64_t>()) : std::nullopt;
}

// Like plain_word(), also with capital letters.
std::string plain_name(const std::optional<std::string>& name) {
  std::string small = name.value_or("");
  std::ranges::transform(small, small.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return plain_word(small) == kNotRecorded ? std::string(kNotRecorded) : *name;
}

std::string text_of_conversion(const ConversionRecord& record) {
  if (!record.pooled()) {
    std::vector<std::string> form;
    for (const auto& [fact, words] : {std::pair{&record.dtype, "{}"},
                                      {&record.source_architecture, "from {}"},
                                      {&record.source_positions, "from {} positions"}}) {
      if (fact->recorded()) {
        form.push_back(fmt::format(fmt::runtime(words), plain_name(fact->value)));
      }
    }
    return fmt::format("written in another form{}{}{}, kv heads as before ({}){}",
                       form.empty() ? "" : " (", fmt::join(form, ", "), form.empty() ? "" : ")",
                       plain_heads(record.kv_heads.value),
                       record.stored_kv_heads.recorded()
                           ? ", stored as " + plain_heads(record.stored_kv_heads.value)
                           : "");
  }
  return fmt::format("converted from {} to {} ({}, {}{}{})",
                     plain_heads(record.source_kv_heads.value, "kv head"),
                     plain_heads(record.kv_heads.value), plain_word(record.pool.value),
                     plain_word(record.grouping.value), record.refit.recorded() ? ", refitted" : "",
                     record.keeps_distillation() ? ", distilled" : "");
}

bool takes_heads_as_they_are(std::string_view pool) {
  return pool == "mean" || pool == "first" || pool == "random";
}

}  // namespace

std::string text_of_step(const Json& step) {
  if (stands_for_older_steps(step)) {
    return fmt::format("{} older steps", plain_count(left_out_of(step)));
  }
  const ConversionRecord record(step);
  return record.training.recorded()
             ? text_of_training(record.training.value.value_or(TrainingRecord()))
             : text_of_conversion(record);
}

std::string version_of_step(const Json& step) {
  const ConversionRecord record(step);
  const std::string version =
      plain_word(record.trained() ? record.training.value->version : record.version.value);
  return version == kNotRecorded ? "" : version;
}

std::string text_of_held_out(const HeldOut& held_out) {
  if (!held_out.models || held_out.models->empty()) {
    return "";
  }
  const bool predicts = held_out.models->front().loss.has_value();
  std::vector<std::string> rows;
  for (const HeldOutModel& row : *held_out.models) {
    rows.push_back(
        fmt::format("{} {}", plain_word(row.model), plain_loss(predicts ? row.loss : row.cosine)));
  }
  return fmt::format("{} {} on {} tokens", fmt::join(rows, ", "),
                     predicts ? "nats per token" : "cosine to the source",
                     plain_count(held_out.tokens));
}

std::optional<HeldOut> shown_held_out(const ConversionRecord& record) {
  std::optional<HeldOut> shown = record.held_out.value;
  if (shown && shown->models && record.trained()) {
    for (HeldOutModel& row : *shown->models) {
      row.model = row.model == "result" ? "converted" : row.model;
    }
  }
  return shown;
}

std::string text_of_lost_knowledge(const HeldOut& held_out) {
  // At 0.37 SmolLM2-135M answered 64 % of the questions that it answered before, at 0.47 52 %, at
  // 1.04 15 % (docs/results.md, "What the model still knows").
  constexpr double kFarFromSource = 0.25;
  const auto models = held_out.models.value_or(std::vector<HeldOutModel>());
  const auto result = std::ranges::find(models, "result", &HeldOutModel::model);
  if (result == models.end() || !result->loss) {
    return "";
  }
  if (!result->own_divergence) {
    return "the losses are those of text like the given one; what else the source knew was neither "
           "trained on nor measured: --own-text does both (without it, SmolLM2-135M kept 11 of 75 "
           "right answers)";
  }
  return *result->own_divergence <= kFarFromSource
             ? ""
             : fmt::format(
                   "on text that the source wrote, the result is {:.2f} nats per token from it: it "
                   "has lost part of what the source knew (at 0.5 SmolLM2-135M answered half of "
                   "its questions, at 1.0 a seventh); more kv heads, more text or training with "
                   "the source as teacher keep more",
                   *result->own_divergence);
}

std::string text_of_unadapted_heads(std::string_view model, std::string_view pool) {
  return takes_heads_as_they_are(pool)
             ? fmt::format(
                   "{} is not usable as it is: method {} keeps little of what a trained model's "
                   "heads computed",
                   model, pool)
             : fmt::format(
                   "{} may not be usable as it is: method {} used only the weights, not their "
                   "inputs on a text",
                   model, pool);
}

namespace {

// After the mean, 65,536 tokens gave none of SmolLM2-135M's answers back (docs/results.md, "What
// the model still knows"); published recoveries of it take billions.
constexpr std::uint64_t kFewTokens = 10'000'000;

// What left the heads as they are: the last conversion to fewer, whatever form the model was given
// since then.
struct Pooled {
  ConversionRecord step;
  std::uint64_t tokens = 0;            // of training since then
  Fact<TrainingRecord> training = {};  // the last of it
};

std::optional<Pooled> last_pooling(const ConversionRecord& record) {
  Pooled since;
  const Json steps = record.steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const ConversionRecord facts(*step);
    if (facts.training.recorded()) {
      if (!since.training.recorded()) {
        since.training = facts.training;
      }
      since.tokens += facts.training.value.value_or(TrainingRecord())
                          .tokens.value_or(kFewTokens);  // unknown tokens are enough
    } else if (facts.converted() && facts.pooled()) {
      since.step = facts;
      return since;
    }
  }
  return std::nullopt;
}

std::string text_of_short_training(std::string_view pool, std::uint64_t tokens) {
  return fmt::format(
      "this model may not be usable yet: after method {} it was trained on {} tokens, and heads "
      "that nothing else has adapted take many millions of them (regroup verify SOURCE MODEL "
      "--logits "
      "measures how far it is from its source)",
      pool, fmt::group_digits(tokens));
}

// Empty if something has adapted the heads to the model's inputs.
std::string text_of_usability(const Pooled& pooled) {
  const ConversionRecord& step = pooled.step;
  if (step.refit.recorded() || step.keeps_distillation() || step.calibration_tokens.recorded()) {
    return "";
  }
  const std::string pool = plain_word(step.pool.value);
  if (pooled.training.recorded()) {
    return pooled.tokens < kFewTokens ? text_of_short_training(pool, pooled.tokens) : "";
  }
  return text_of_unadapted_heads("this model", pool) +
         (takes_heads_as_they_are(pool) ? " (regroup convert --text makes one that loses far less)"
                                        : " (regroup convert --text does, and loses far less)");
}

}  // namespace

ConversionRecord with_pooling(const ConversionRecord& record) {
  const std::optional<Pooled> pooled = last_pooling(record);
  if (record.pooled() || !pooled) {
    return record;
  }
  ConversionRecord shown = pooled->step;
  shown.training = pooled->training;
  return shown;
}

std::vector<std::string> warnings_in(const ConversionRecord& record) {
  const std::optional<Pooled> pooled = last_pooling(record);
  if (!pooled) {
    return {};
  }
  const std::optional<HeldOut> held_out = with_pooling(record).held_out.value;
  std::vector<std::string> warnings{
      text_of_usability(*pooled),
      held_out && !pooled->training.recorded() ? text_of_lost_knowledge(*held_out) : ""};
  std::erase(warnings, "");
  return warnings;
}

std::string text_of_answer(const std::optional<std::string>& answer) {
  std::istringstream words(answer.value_or(""));
  std::string line;
  for (std::string word; words >> word;) {
    line += (line.empty() ? "" : " ") + word;
  }
  return printable(line, 400);
}

std::string text_of_distilled(const DistillOutcome& outcome) {
  const bool predicts = outcome.measure == "kl_divergence";
  return fmt::format("{} {} -> {}{} on the windows that judged it{}",
                     predicts ? "divergence from the source" : "error of last hidden states",
                     plain_loss(outcome.before), plain_loss(outcome.after),
                     predicts ? " nats per token" : "",
                     outcome.kept == true ? "" : "; not better, so it was undone");
}

std::string line_of_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json bounded_history(const Json& all) {
  std::vector<Json> steps(all.begin(), all.end());
  std::uint64_t left_out = 0;
  if (!steps.empty() && stands_for_older_steps(steps.front())) {
    left_out = left_out_of(steps.front()).value_or(0);
    steps.erase(steps.begin());
  }
  std::size_t kept = 0;
  std::size_t bytes = 0;
  for (auto step = steps.rbegin(); step != steps.rend() && kept < kMostSteps; ++step, ++kept) {
    bytes += line_of_json(*step).size();
    if (bytes > kMostHistoryBytes) {
      break;
    }
  }
  left_out += steps.size() - kept;
  Json list = Json::array();
  if (left_out > 0) {
    list.push_back({{kLeftOutKey, left_out}});
  }
  for (auto step = steps.end() - static_cast<std::ptrdiff_t>(kept); step != steps.end(); ++step) {
    list.push_back(std::move(*step));
  }
  return list;
}

}  // namespace regroup

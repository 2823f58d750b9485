#include "formats/record/record_words.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace regroup {
namespace {

std::string list_of_heads(const Json& list) {
  const bool counts = !list.empty() && std::all_of(list.begin(), list.end(), [](const Json& count) {
    return count.is_number_unsigned();
  });
  if (!counts) {
    return std::string(kNotRecorded);
  }
  const auto heads = list.get<std::vector<std::uint64_t>>();
  const bool uniform = std::all_of(heads.begin(), heads.end(),
                                   [&](std::uint64_t count) { return count == heads.front(); });
  return uniform ? fmt::format("{}", heads.front()) : fmt::format("{}", fmt::join(heads, ", "));
}

std::string text_of_training(const Json& training) {
  std::string text =
      fmt::format("trained in {} steps on {} tokens", plain_count(member_of(training, "steps")),
                  plain_count(member_of(training, "tokens")));
  if (member_of(training, "eval_loss").is_number()) {
    text +=
        fmt::format(", held-out loss {} to {}", plain_loss(member_of(training, "eval_loss_before")),
                    plain_loss(member_of(training, "eval_loss")));
  }
  return text;
}

std::string text_of_conversion(const Json& facts) {
  const Json& before = member_of(facts, "source_kv_heads");
  const Json& after = member_of(facts, "kv_heads");
  if (before == after) {
    const Json& stored = member_of(facts, "stored_kv_heads");
    return fmt::format("converted with its {} kv heads{}", plain_heads(after),
                       stored.is_null() ? "" : ", stored as " + plain_heads(stored));
  }
  std::string more;
  more += facts.contains("refit") ? ", refitted" : "";
  more += member_of(member_of(facts, kDistilledKey), "kept") == true ? ", distilled" : "";
  return fmt::format("converted from {} kv heads to {} ({}, {}{})", plain_heads(before),
                     plain_heads(after), plain_word(member_of(facts, "pool")),
                     plain_word(member_of(facts, "grouping")), more);
}

}  // namespace

std::string plain_word(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  return plain && !text.empty() && text.size() <= 40 ? text : std::string(kNotRecorded);
}

std::string plain_count(const Json& value) {
  return value.is_number_unsigned() ? fmt::format("{}", value.get<std::uint64_t>())
                                    : std::string(kNotRecorded);
}

std::string plain_loss(const Json& value) {
  return value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : std::string(kNotRecorded);
}

std::string plain_heads(const Json& value) {
  if (value.is_object()) {
    std::vector<std::string> roles;
    for (const auto& [role, heads] : value.items()) {
      roles.push_back(fmt::format("{} {}", plain_word(role),
                                  heads.is_object() ? kNotRecorded : plain_heads(heads)));
    }
    return fmt::format("{}", fmt::join(roles, ", "));
  }
  return value.is_array() ? list_of_heads(value) : plain_count(value);
}

std::string text_of_step(const Json& step) {
  if (step.contains(kLeftOutKey)) {
    return fmt::format("{} older steps", plain_count(step[kLeftOutKey]));
  }
  return step.contains(kTrainingKey) ? text_of_training(step[kTrainingKey])
                                     : text_of_conversion(step);
}

std::string text_of_held_out(const Json& held_out) {
  const Json& models = member_of(held_out, "models");
  if (!models.is_array() || models.empty()) {
    return "";
  }
  const bool predicts = member_of(models.front(), "loss").is_number();
  std::vector<std::string> rows;
  for (const Json& row : models) {
    rows.push_back(fmt::format("{} {}", plain_word(member_of(row, "model")),
                               plain_loss(member_of(row, predicts ? "loss" : "cosine"))));
  }
  return fmt::format("{} {} on {} tokens", fmt::join(rows, ", "),
                     predicts ? "nats per token" : "cosine to the source",
                     plain_count(member_of(held_out, "tokens")));
}

std::string text_of_distilled(const Json& distilled) {
  if (!distilled.is_object()) {
    return "";
  }
  const bool predicts = member_of(distilled, "measure") == "kl_divergence";
  return fmt::format("{} {} -> {}{} on held-out text{}",
                     predicts ? "divergence from the source" : "error of last hidden states",
                     plain_loss(member_of(distilled, "before")),
                     plain_loss(member_of(distilled, "after")), predicts ? " nats per token" : "",
                     member_of(distilled, "kept") == true ? "" : "; not better, so it was undone");
}

}  // namespace regroup

#include <fmt/format.h>

#include "cli/measure/verify_logits.h"
#include "cli/options/command.h"
#include "cli/options/number_options.h"
#include "cli/terminal/text.h"
#include "formats/base/printable.h"

namespace regroup {

void add_logits_options(Command command, LogitsOptions& question) {
  command.add_flag("--logits", question.asked,
                   "run both models on tokens, and tell how far their predictions lie apart");
  command.add_option("--data", question.data, "of --logits: a token file (default: random tokens)");
  add_count(command, "--context", question.context,
            "of --logits: tokens in a window (default: 512, or the model's positions if fewer)",
            {2, kMostContext})
      .default_text("");
  add_count(command, "--max-tokens", question.max_tokens, "of --logits: tokens to read");
  command.add_option("--device", question.device, "of --logits: cpu, cuda or cuda:N");
  add_threads_option(command, question.threads, "of --logits: CPU threads");
}

namespace {

std::string tokens_text(const LogitsResult& answer) {
  return fmt::format(
      "{} {} in windows of {}", with_thousands(static_cast<std::uint64_t>(answer.tokens)),
      answer.data.empty() ? "random tokens" : "tokens of " + printable(answer.data, 0),
      with_thousands(static_cast<std::uint64_t>(answer.context)));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> logits_facts(const LogitsResult& answer) {
  return {{"predictions", tokens_text(answer)},
          {"KL per token", fmt::format("{:.4g} nats (source || result), {:.4g} at most", answer.kl,
                                       answer.largest_kl)},
          {"logits differ",
           fmt::format("{:.3g} on average, {:.3g} at most (the largest is {:.3g})",
                       answer.mean_difference, answer.largest_difference, answer.largest_logit)},
          {"same first choice", fmt::format("{:.4g} % of tokens", 100 * answer.agreement)}};
}

std::string logits_text(const LogitsResult& answer) {
  std::string text;
  for (const auto& [name, value] : logits_facts(answer)) {
    text += fmt::format("{}{:<19}{}", text.empty() ? "" : "\n", name, value);
  }
  return text;
}

Json logits_json(const LogitsResult& answer) {
  return {{"data", answer.data.empty() ? Json(nullptr) : Json(answer.data)},
          {"context", answer.context},
          {"tokens", answer.tokens},
          {"kl", answer.kl},
          {"largest_kl", answer.largest_kl},
          {"mean_difference", answer.mean_difference},
          {"largest_difference", answer.largest_difference},
          {"largest_logit", answer.largest_logit},
          {"agreement", answer.agreement}};
}

}  // namespace regroup

#include "cli/measure/compare_logits.h"

#include "cli/shell/quantity.h"
#include "formats/base/printable.h"

namespace regroup {

void add_logits_options(Command command, LogitsOptions& options) {
  command.add_flag("--logits", options.enabled,
                   "run both models on tokens and report how much their predictions differ");
  command.add_option("--data", options.data, "token file (default: random tokens)");
  add_count(command, "--context", options.context,
            "tokens in a window of text (default: 512, or the model's positions if fewer)",
            {2, kMostContext});
  add_count(command, "--max-tokens", options.max_tokens, "read about this many tokens");
  add_device_option(command, options.device);
  add_threads_option(command, options.threads);
}

namespace {

std::string tokens_text(const LogitsResult& result) {
  return fmt::format(
      "{} {} in windows of {}", with_thousands(result.tokens),
      result.data.empty() ? "random tokens" : "tokens of " + printable(result.data, 0),
      with_thousands(result.context));
}

}  // namespace

Facts logits_facts(const LogitsResult& result) {
  return {{"predictions", tokens_text(result)},
          {"KL per token", fmt::format("{:.4g} nats (source || result), {:.4g} at most", result.kl,
                                       result.largest_kl)},
          {"logits differ",
           fmt::format("{:.3g} on average, {:.3g} at most (the largest is {:.3g})",
                       result.mean_difference, result.largest_difference, result.largest_logit)},
          {"same first choice", fmt::format("{:.4g} % of tokens", 100 * result.agreement)}};
}

Json logits_json(const LogitsResult& result) {
  return {{"data", result.data.empty() ? Json(nullptr) : Json(result.data)},
          {"context", result.context},
          {"tokens", result.tokens},
          {"kl", result.kl},
          {"largest_kl", result.largest_kl},
          {"mean_difference", result.mean_difference},
          {"largest_difference", result.largest_difference},
          {"largest_logit", result.largest_logit},
          {"agreement", result.agreement}};
}

}  // namespace regroup

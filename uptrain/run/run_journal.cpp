#include "uptrain/run/run_journal.h"

#include <fmt/format.h>

#include "formats/json/json.h"

namespace regroup {
void RunJournal::record_step(const StepReport& report) {
  Json line = {{"step", report.step},
               {"loss", number_or_null(report.loss)},
               {"lr", report.learning_rate},
               {"grad_norm", number_or_null(report.gradient_norm)},
               {"tokens", report.step * report.tokens},
               {"seconds", report.seconds},
               {"tokens_per_second", static_cast<double>(report.tokens) / report.seconds},
               {"skipped", report.skipped}};
  if (report.communication) {
    line.update({{"waited_seconds", report.communication->seconds},
                 {"sent_bytes", report.communication->sent},
                 {"received_bytes", report.communication->received}});
  }
  append(line);
  if (report.skipped) {
    observer_.on_warning(
        fmt::format("step {}: loss or gradients are not finite, no update made", report.step));
    return;
  }
  const double usual = losses_.mean();
  if (losses_.add(report.loss)) {
    observer_.on_warning(fmt::format("step {}: the loss is {:.4f}, the last {} had {:.4f}",
                                     report.step, report.loss, LossSpikeDetector::kWindow, usual));
  }
}

void RunJournal::record_evaluation(std::int64_t step, const Evaluation& evaluation) {
  append({{"step", step},
          {"eval_loss", number_or_null(evaluation.loss)},
          {"eval_perplexity", number_or_null(evaluation.perplexity)},
          {"eval_tokens", evaluation.tokens}});
}

void RunJournal::append(const Json& line) {
  if (metrics_) {
    metrics_->append(line);
    observer_.on_metrics(line);
  }
}

}  // namespace regroup

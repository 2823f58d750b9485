// The output of regroup uptrain: the plan with its memory, the progress of the run, and the
// result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/shell/console.h"
#include "cli/shell/progress.h"
#include "formats/base/json.h"
#include "uptrain/run/distill.h"
#include "uptrain/run/uptrain.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {

/// Lines of a plan: what the run needs and for what, what is free, its memory mode and the others.
std::string memory_text(const UptrainPlan& plan);

/// What each of several ranks holds, why, and what other ways to share would need.
std::string sharding_text(const UptrainPlan& plan);
Json sharding_json(const UptrainPlan& plan);

/// The members of a plan's JSON that are about memory.
Json memory_json(const UptrainPlan& plan);

/// The plan as lines of text.
std::string plan_text(const UptrainPlan& plan);
/// Width of the names at the beginning of its lines, in columns.
inline constexpr std::size_t kPlanIndent = 10;

/// The same as JSON.
Json plan_json(const UptrainPlan& plan);

/// A line on the learning rate that trials have chosen.
std::string rate_text(const RateChoice& choice);

/// Shows the progress of a run on the console.
class ConsoleObserver : public UptrainObserver {
 public:
  ConsoleObserver(const UptrainPlan& plan, const Console& console);

  void on_start(const TrainingProgress& progress) override;
  void on_step(const StepReport& report) override;
  void on_metrics(const Json& line) override;
  void on_evaluating(std::int64_t step, std::int64_t done, std::int64_t all) override;
  void on_evaluation(std::int64_t step, const Evaluation& evaluation) override;
  void on_saved(const std::filesystem::path& run, std::int64_t step) override;
  void on_warning(const std::string& text) override;

  /// The speed of the steps so far, without evaluations and saving.
  double tokens_per_second() const;
  Progress& progress() { return progress_; }

 private:
  const UptrainPlan& plan_;
  const Console& console_;
  Progress progress_;
  double smoothed_loss_ = -1.0;
  double trained_seconds_ = 0.0;
  std::int64_t trained_tokens_ = 0;
};

/// Prints the result of a complete run, as text or JSON.
void report_result(const UptrainPlan& plan, const UptrainResult& result, double tokens_per_second,
                   bool json, const Console& console);

}  // namespace regroup

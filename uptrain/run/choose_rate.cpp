#include "uptrain/run/choose_rate.h"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "uptrain/optim/rate_search.h"
#include "uptrain/run/run_loss.h"
#include "uptrain/run/trained_model.h"

namespace regroup {
namespace {

// RateSearch begins at 0.03, trials at the usual rate of uptraining.
constexpr double kUnit = kUsualLearningRate / 0.03;

[[noreturn]] void throw_interrupted() {
  throw Error(ErrorKind::kInterrupted, "interrupted; nothing was left behind");
}

class Trials {
 public:
  Trials(const UptrainPlan& plan, const Model& source, const DataLoader& data,
         const std::atomic<bool>& stop, ProcessGroup* group)
      : plan_(plan), source_(source), data_(data), stop_(stop), group_(group) {}

  // The loss after a trial of that many steps.
  double loss_after(std::int64_t steps, double rate) const {
    TrainedModel student(source_, plan_.settings, group_);
    const RunLoss loss(plan_, source_, student.model(), group_);
    Trainer trainer = student.trainer(loss.function(), data_, loop_settings(steps, rate));
    TrainingProgress progress;
    if (!trainer.run(progress, stop_, {})) {
      throw_interrupted();
    }
    return judge(loss.function());
  }

 private:
  LoopSettings loop_settings(std::int64_t steps, double rate) const {
    const UptrainSettings& settings = plan_.settings;
    return {.steps = steps,
            .batch = settings.batch,
            .accumulation = settings.accumulation,
            .max_gradient_norm = settings.max_gradient_norm,
            .max_skipped_in_a_row = steps,  // such a rate is judged by its loss
            .schedule = {.peak = rate,
                         .final_ratio = settings.min_learning_rate_ratio,
                         .warmup_steps = std::max<std::int64_t>(1, steps / 10),
                         .steps = steps}};
  }

  // The mean loss over the judging batches, of which each rank computes its share.
  double judge(const TrainingLoss& loss) const {
    const at::NoGradGuard no_gradients;
    const std::int64_t batch = plan_.settings.batch;
    const std::int64_t trained = plan_.rate_trials->steps * plan_.settings.accumulation;
    const std::int64_t share = group_ != nullptr ? group_->share() : 0;
    const std::int64_t shares = group_ != nullptr ? group_->shares() : 1;
    double sum = 0.0;
    bool stopped = false;
    const std::int64_t judging = plan_.rate_trials->judging;
    const bool in_step = plan_.settings.passes_in_step();
    for (std::int64_t begin = 0; begin < judging && (in_step || !stopped); begin += shares) {
      const bool counts = begin + share < judging;
      if (!counts && !in_step) {
        break;
      }
      const std::int64_t first = (trained + (counts ? begin + share : begin)) * batch;
      const double value = loss(data_.batch(first, batch), first).item<double>();
      sum += counts ? value : 0.0;
      stopped = stop_;
    }
    return mean_of_all(sum, stopped);
  }

  double mean_of_all(double sum, bool stopped) const {
    at::Tensor sums = at::tensor({sum, stopped ? 1.0 : 0.0}, at::kDouble);
    if (group_ != nullptr) {
      sums = group_->sum(sums).to(at::kCPU);
    }
    if (sums[1].item<double>() != 0.0) {
      throw_interrupted();
    }
    return sums[0].item<double>() / static_cast<double>(plan_.rate_trials->judging);
  }

  const UptrainPlan& plan_;
  const Model& source_;
  const DataLoader& data_;
  const std::atomic<bool>& stop_;
  ProcessGroup* group_;
};

}  // namespace

std::optional<RateChoice> choose_rate(UptrainPlan& plan, const Model& source,
                                      const DataLoader& data, const RateProgress& after_trial,
                                      const std::atomic<bool>& stop, ProcessGroup* group) {
  if (!plan.rate_trials) {
    return std::nullopt;
  }
  // Ranks stop together, between steps.
  const StopScope scope(group != nullptr ? nullptr : StopScope::current());
  RateChoice choice;
  with_torch_errors([&] {
    const Trials trials(plan, source, data, stop, group);
    choice.before = trials.loss_after(0, 0.0);
    std::map<double, double> losses;  // by relative rate
    const double best = RateSearch().best([&](double relative) {
      const double loss = trials.loss_after(plan.rate_trials->steps, kUnit * relative);
      call_if_given(after_trial, kUnit * relative, loss);
      return losses[relative] = loss;
    });
    choice.rate = kUnit * best;
    choice.after = losses.at(best);
  });
  take_rate(plan, choice.rate);
  return choice;
}

}  // namespace regroup

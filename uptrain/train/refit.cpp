#include "uptrain/train/refit.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "converter/pooling/head_moments.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "uptrain/model/attention_layer.h"
#include "uptrain/model/device.h"
#include "uptrain/model/parameters.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/optimizer.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {

// Shapes: B windows of T tokens, D hidden size, H query heads, G kv heads, d features per head.

namespace {

// A linear map divided by its RMS, so that one learning rate suits all maps.
struct ScaledLinear {
  double scale = 1.0;
  at::Tensor weight, bias;  // leaves

  ScaledLinear(const DenseLinear& linear, c10::Device device) {
    const at::Tensor wide = tensor_of(linear.weight, {linear.outputs, linear.inputs}, c10::kCPU);
    const double size = wide.square().mean().sqrt().item<double>();
    scale = size > 0.0 ? size : 1.0;
    const auto leaf_of = [&](const at::Tensor& values) {
      return (values / scale).to(device, at::kFloat).contiguous().set_requires_grad(true);
    };
    weight = leaf_of(wide);
    if (!linear.bias.empty()) {
      bias = leaf_of(tensor_of(linear.bias, {linear.outputs}, c10::kCPU));
    }
  }

  // The map with its own scale, for a forward pass with gradients.
  Linear linear() const { return {weight * scale, bias.defined() ? bias * scale : at::Tensor()}; }

  void write_to(DenseLinear& linear) const {
    const auto put = [&](const at::Tensor& leaf, std::vector<double>& values) {
      const at::Tensor wide = (leaf.detach().to(at::kCPU, at::kDouble) * scale).contiguous();
      std::copy_n(wide.const_data_ptr<double>(), wide.numel(), values.begin());
    };
    put(weight, linear.weight);
    if (bias.defined()) {
      put(bias, linear.bias);
    }
  }
};

// The trainable weights of one attention while it is refitted.
class AttentionFit {
 public:
  // All that is not pooled is as in `source`, see with_heads().
  AttentionFit(const AttentionHeads& heads, const AttentionLayer& source,
               std::span<const std::int64_t> query_order, c10::Device device)
      : q_(heads.q, device),
        k_(heads.k, device),
        v_(heads.v, device),
        o_(heads.o, device),
        start_(with_heads(source, heads, query_order)) {}

  AttentionLayer attention() const {
    AttentionLayer layer = start_;
    layer.q = q_.linear();
    layer.k = k_.linear();
    layer.v = v_.linear();
    layer.o = o_.linear();
    return layer;
  }

  Parameters parameters() const {
    std::vector<Parameters::Entry> entries;
    for (const ScaledLinear* map : {&q_, &k_, &v_, &o_}) {
      for (const at::Tensor& leaf : {map->weight, map->bias}) {
        if (leaf.defined()) {
          entries.push_back({std::to_string(entries.size()), leaf});
        }
      }
    }
    return Parameters(std::move(entries));
  }

  void write_to(AttentionHeads& heads) const {
    q_.write_to(heads.q);
    k_.write_to(heads.k);
    v_.write_to(heads.v);
    o_.write_to(heads.o);
  }

 private:
  ScaledLinear q_, k_, v_, o_;
  AttentionLayer start_;
};

// A trial of a learning rate: few steps, judged by a part of the text that was held out.
constexpr std::size_t kMostTrialBatches = 4;
constexpr double kUsualTrials = 3.0;  // for each attention, see RateSearch

std::int64_t trial_steps(std::int64_t steps) { return std::max<std::int64_t>(8, steps / 20); }

// What the source's attention computes, batch by batch.
struct RefitTarget {
  const ModelSpec& spec;
  AttentionRole role;
  const LayerWalk& walk;  // has the pass contexts
  const at::Tensor& query_order;
  const AttentionRecord& record;

  at::Tensor squared_error(const AttentionLayer& attention, std::size_t batch) const {
    Pass pass = walk.pass(batch);
    if (pass.mask.defined() && pass.mask.size(1) > 1) {
      pass.mask = pass.mask.index_select(1, query_order);
    }
    const at::Tensor output = role == AttentionRole::kCross
                                  ? cross_attention(attention, spec, record.inputs[batch], pass)
                                  : self_attention(attention, spec, record.inputs[batch], pass);
    return (output - record.outputs[batch]).square().sum();
  }

  at::Tensor power(std::size_t batch) const { return record.outputs[batch].square().sum(); }

  // Squared error / power, summed over batches first to last - 1.
  double error_of(const AttentionLayer& attention, std::size_t first, std::size_t last) const {
    const at::NoGradGuard no_gradients;
    at::Tensor sums = at::zeros({2}, record.outputs.front().options().dtype(at::kDouble));
    for (std::size_t i = first; i < last; ++i) {
      sums += at::stack({squared_error(attention, i), power(i)});
    }
    sums = sums.to(at::kCPU);
    const auto all = sums[1].item<double>();
    return all > 0.0 ? sums[0].item<double>() / all : 0.0;
  }
};

// Trains on the first `batches` batches. `progress`, unless empty, receives the error of each step.
void learn(const AttentionFit& fit, const RefitTarget& target, std::size_t batches,
           const LrSchedule& schedule, const std::atomic<bool>& stop,
           const std::function<void(std::int64_t step, const at::Tensor& error)>& progress) {
  const Parameters parameters = fit.parameters();
  const auto optimizer = make_optimizer(MasterWeights(parameters), {.weight_decay = 0.0});
  GradientSum gradients(parameters.tensors());
  const at::Tensor go_on =
      at::zeros({}, parameters.tensors().front().options().dtype(at::kFloat).requires_grad(false));
  for (std::int64_t step = 0; step < schedule.steps; ++step) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    const std::size_t batch = static_cast<std::size_t>(step) % batches;
    gradients.clear();
    const at::Tensor error =
        target.squared_error(fit.attention(), batch) / target.power(batch).clamp_min(1e-30);
    gradients.add(error);
    optimizer->step(gradients.sums(), schedule.at(step),
                    clipping_divisor(global_norm(gradients.sums()), 1.0), go_on);
    call_if_given(progress, step + 1, error);
  }
}

Batches windows_of(const ModelSpec& spec, const TokenFile& data, const RefitSettings& settings) {
  if (!can_refit(spec)) {
    throw_usage("refitting: {} normalises keys with separate weights for each head",
                printable(spec.architecture));
  }
  data.check_vocabulary(spec.vocab_size);
  if (settings.steps < 1 || !(settings.learning_rate.value_or(1.0) > 0.0)) {
    throw_usage("refitting needs one step or more and a learning rate above 0");
  }
  Batches windows = read_windows(data, settings.windows);
  if (windows.size() < 2) {
    throw_bad_input("{}: {} tokens of it are one batch, refitting needs two of {} x {} tokens",
                    printable_path(data.path()),
                    count_windows(data, settings.windows) * settings.windows.context,
                    settings.windows.batch, settings.windows.context);
  }
  return windows;
}

// The number of weights of the attentions that have fewer kv heads in `grouped` than in `source`.
double refitted_weights(const ModelSpec& source, const ModelSpec& grouped) {
  double weights = 0.0;
  for (const AttentionRole role : grouped.roles()) {
    for (std::size_t i = 0; i < grouped.stack(role).size(); ++i) {
      const std::int64_t groups = grouped.kv_heads_of(role)[i];
      if (groups != source.kv_heads_of(role)[i]) {
        weights += 2.0 * static_cast<double>((grouped.query_heads + groups) * grouped.head_dim) *
                   static_cast<double>(grouped.hidden_size);
      }
    }
  }
  return weights;
}

}  // namespace

Refit::Refit(const Model& source, const TokenFile& data, const RefitSettings& settings,
             const std::atomic<bool>& stop)
    : spec_(source.spec),
      settings_(settings),
      stop_(stop),
      tokens_(count_windows(data, settings.windows) * settings.windows.context),
      walk_(source, windows_of(source.spec, data, settings), settings.device) {
  batches_ = walk_.hidden().size();
  measured_ = std::max<std::size_t>(1, batches_ / 10);
}

void Refit::walk_to(AttentionRole role, std::size_t layer) {
  const AttentionRole stack = role == AttentionRole::kCross ? AttentionRole::kSelf : role;
  while (records_.empty() || walk_.stack() != stack || walk_.layer() != layer) {
    records_.clear();
    if (!walk_.next()) {
      throw_usage("refitting: layer {} was requested after the last one", layer);
    }
    const bool here = walk_.stack() == stack && walk_.layer() == layer;
    walk_.run(
        [&](AttentionRole seen, const at::Tensor& input, const at::Tensor& output) {
          if (here) {
            AttentionRecord& record =
                records_[seen == AttentionRole::kCross ? AttentionRole::kCross : stack];
            record.inputs.push_back(input);
            record.outputs.push_back(output);
          }
        },
        stop_);
  }
}

RefinementReport Refit::refine(AttentionRole role, std::size_t layer,
                               std::span<const std::int64_t> query_order, AttentionHeads& heads) {
  RefinementReport report;
  with_torch_errors([&] { report = fit(role, layer, query_order, heads); });
  return report;
}

RefinementReport Refit::fit(AttentionRole role, std::size_t layer,
                            std::span<const std::int64_t> query_order, AttentionHeads& heads) {
  walk_to(role, layer);
  const Block& block = walk_.block();
  const at::Tensor order =
      at::tensor(at::ArrayRef<std::int64_t>(query_order.data(), query_order.size()))
          .to(settings_.device);
  const AttentionLayer& rest = role == AttentionRole::kCross ? block.cross : block.attention;
  const auto start = [&] { return AttentionFit(heads, rest, query_order, settings_.device); };
  const RefitTarget target{spec_, role, walk_, order, records_.at(role)};
  const std::size_t learned = batches_ - measured_;
  const auto trial = [&](double rate) {
    const AttentionFit tried = start();
    learn(tried, target, learned, fitting_schedule(rate, trial_steps(settings_.steps)), stop_, {});
    return target.error_of(tried.attention(), learned,
                           std::min(batches_, learned + kMostTrialBatches));
  };
  RefinementReport report;
  report.learning_rate =
      settings_.learning_rate ? *settings_.learning_rate : rates_[role].best(trial);
  const AttentionFit attention = start();
  report.error_before = target.error_of(attention.attention(), learned, batches_);
  learn(attention, target, learned, fitting_schedule(report.learning_rate, settings_.steps), stop_,
        [&](std::int64_t step, const at::Tensor& error) {
          if (progress_) {
            progress_({role, layer, step, error.item<double>()});
          }
        });
  report.error_after = target.error_of(attention.attention(), learned, batches_);
  if (report.error_after < report.error_before) {
    attention.write_to(heads);
  } else {
    report.error_after = report.error_before;
  }
  return report;
}

Recipe Refit::recipe() const {
  return {.tokens = tokens_,
          .context = settings_.windows.context,
          .steps = settings_.steps,
          .tokens_per_step = settings_.windows.batch * settings_.windows.context,
          .learning_rate = settings_.learning_rate ? Json(*settings_.learning_rate) : Json("auto")};
}

double Refit::training_token_equivalents(const ModelSpec& grouped) const {
  // A forward pass takes two operations per weight and token, training six.
  const auto all = static_cast<double>(multiplied_weights(spec_));
  const double head = static_cast<double>(spec_.vocab_size * spec_.embedding_width());
  const auto per_batch = static_cast<double>(settings_.windows.batch * settings_.windows.context);
  const double walk = 2.0 * (all - head) * static_cast<double>(tokens_);
  const auto batches_of = [](std::int64_t steps, std::size_t forward) {
    return 6.0 * static_cast<double>(steps) + 2.0 * static_cast<double>(forward);
  };
  const double refit = refitted_weights(spec_, grouped) * per_batch *
                       (batches_of(settings_.steps, 2 * measured_) +
                        (settings_.learning_rate
                             ? 0.0
                             : kUsualTrials * batches_of(trial_steps(settings_.steps),
                                                         std::min(measured_, kMostTrialBatches))));
  return (walk + refit) / (6.0 * all);
}

}  // namespace regroup

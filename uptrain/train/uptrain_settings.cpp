#include "uptrain/train/uptrain_settings.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/file.h"

namespace regroup {
namespace {

// Collects faults so that a user sees all of them at once.
class Faults {
 public:
  void require(bool holds, std::string_view fault) {
    if (!holds) {
      found_.emplace_back(fault);
    }
  }
  void at_least(std::int64_t lowest, std::string_view name, std::int64_t value) {
    require(value >= lowest, fmt::format("{} is {}, allowed is {} or more", name, value, lowest));
  }
  void within(double lowest, double highest, std::string_view name, double value) {
    require(value >= lowest && value <= highest,  // false for NaN
            fmt::format("{} is {}, allowed is {} to {}", name, value, lowest, highest));
  }
  void report() const {
    if (!found_.empty()) {
      throw_usage("{}", fmt::join(found_, "; "));
    }
  }

 private:
  std::vector<std::string> found_;
};

void check_length(Faults& faults, const UptrainSettings& settings) {
  const int totals = (settings.pretrain_steps ? 1 : 0) + (settings.pretrain_tokens ? 1 : 0);
  if (settings.steps) {
    faults.at_least(1, "steps", *settings.steps);
    faults.require(!settings.alpha && totals == 0,
                   "--steps sets the length alone: leave out --alpha, --pretrain-steps and "
                   "--pretrain-tokens");
    return;
  }
  faults.require(settings.alpha.has_value(),
                 "the length of training is not set: --alpha with --pretrain-steps or "
                 "--pretrain-tokens, or --steps");
  if (!settings.alpha) {
    return;
  }
  faults.require(totals == 1,
                 totals == 0
                     ? "alpha is a fraction of the pretraining, whose length is not known: add "
                       "--pretrain-steps N or --pretrain-tokens N, or give --steps N instead"
                     : "--pretrain-steps and --pretrain-tokens both set the length of the "
                       "pretraining: give one of them");
  faults.require(*settings.alpha > 0 && *settings.alpha <= 100,
                 fmt::format("alpha is {}, allowed is more than 0, up to 100", *settings.alpha));
  faults.at_least(1, "pretraining steps", settings.pretrain_steps.value_or(1));
  faults.at_least(1, "pretraining tokens", settings.pretrain_tokens.value_or(1));
}

// Batches are shared by groups of ranks, each of which shares their sequences.
void check_sequence_ranks(Faults& faults, const UptrainSettings& settings) {
  const std::int64_t each = settings.sequence_ranks;
  faults.at_least(1, "ranks that share a window", each);
  if (each < 1) {
    return;
  }
  if (settings.ranks % each != 0) {
    faults.require(
        false, settings.ranks == 1
                   ? "--sequence-parallel needs several ranks (torchrun, mpirun or srun start them)"
                   : fmt::format("{} ranks cannot be divided into groups of {} that share windows: "
                                 "allowed are divisors of {}",
                                 settings.ranks, each, settings.ranks));
    return;
  }
  faults.require(
      settings.accumulation % settings.shares() == 0,
      fmt::format("{} batches in a step cannot be shared by {} {}: allowed are multiples of {}",
                  settings.accumulation, settings.shares(),
                  each == 1 ? "ranks" : fmt::format("groups of {} ranks", each),
                  settings.shares()));
  const bool narrow = settings.precision == Precision::kBf16 &&
                      settings.teacher.precision.value_or(Precision::kBf16) == Precision::kBf16;
  faults.require(each == 1 || settings.device.is_cpu() || narrow,
                 "--sequence-parallel on a GPU needs bf16 for model and teacher: its kernels for "
                 "parts of windows are those of narrow types");
  faults.require(each == 1 || settings.teacher.attention_weight == 0,
                 "--distill-attention compares whole windows: it excludes --sequence-parallel");
}

void check_ranks(Faults& faults, const UptrainSettings& settings) {
  const auto& [weights, copies] = settings.sharding;
  faults.require(!weights || settings.ranks > 1,
                 "--shard full needs several ranks (torchrun, mpirun or srun start them)");
  faults.require(
      copies == 1 || (weights && settings.ranks % copies == 0 && settings.ranks > copies),
      fmt::format("{} ranks cannot hold {} copies of the weights: allowed are numbers of copies "
                  "that divide the ranks and leave several for each",
                  settings.ranks, copies));
  check_sequence_ranks(faults, settings);
}

void check_schedule(Faults& faults, const UptrainSettings& settings) {
  const double rate = settings.peak_learning_rate();
  faults.require(rate > 0 && rate <= 10,
                 fmt::format("learning rate is {}, allowed is more than 0, up to 10", rate));
  faults.within(0, 1, "least learning rate ratio", settings.min_learning_rate_ratio);
  faults.at_least(0, "warm-up steps", settings.warmup_steps.value_or(0));
  faults.at_least(1, "decay steps", settings.decay_steps.value_or(1));
  faults.at_least(0, "start step", settings.start_step.value_or(0));
  faults.require(!settings.decay_steps || settings.schedule == LrScheduleKind::kWarmupStableDecay,
                 "decay steps are for the schedule wsd");
  faults.require(!settings.start_step || settings.schedule == LrScheduleKind::kInverseSqrt,
                 "a start step is for the schedule inverse-sqrt");
}

void check_optimizer(Faults& faults, const OptimizerSettings& optimizer) {
  faults.within(0, 0.999999, "beta1", optimizer.beta1);
  faults.within(0, 0.999999, "beta2", optimizer.beta2);
  faults.within(1e-20, 1, "epsilon", optimizer.epsilon);
  faults.within(0, 10, "weight decay", optimizer.decay_of_matrices());
  const bool narrow = optimizer.moments == Precision::kBf16;
  faults.require(!narrow || optimizer.kind == OptimizerKind::kAdamW,
                 "bf16 moments are for the optimizer adamw");
  // A change of a moment by less than half a unit in bf16's last place would be lost.
  faults.require(!narrow || std::max(optimizer.beta1, optimizer.beta2) <= 0.99,
                 "bf16 moments need a beta1 and beta2 of 0.99 at most");
}

void check_teacher(Faults& faults, const TeacherSettings& teacher) {
  faults.within(0, 1, "teacher's weight", teacher.distillation.weight);
  faults.within(0.01, 100, "teacher's temperature", teacher.distillation.temperature);
  faults.require(!teacher.present() || teacher.logits.empty(),
                 "a teacher model and stored teacher logits exclude each other");
  faults.within(0, 1000, "attention's weight", teacher.attention_weight);
  faults.require(teacher.attention_weight == 0 || teacher.present(),
                 "attention distillation needs the teacher model");
}

// Leaves out unused settings, so that they cannot differ between two recipes.
Json recipe_of_optimizer(const OptimizerSettings& settings) {
  Json recipe = {{"optimizer", name_of(settings.kind)},
                 {"weight_decay", settings.decay_of_matrices()}};
  if (settings.kind == OptimizerKind::kAdamW) {
    recipe.update(
        {{"beta1", settings.beta1}, {"beta2", settings.beta2}, {"epsilon", settings.epsilon}});
    if (settings.moments != Precision::kFp32) {
      recipe["moments"] = name_of(settings.moments);
    }
  } else {
    recipe["scale_by_parameter"] = settings.scale_by_parameter;
  }
  return recipe;
}

// "a.bin:0.7" -> a.bin and 0.7, unless a file has that whole name.
std::pair<std::string, std::optional<double>> split_weight(const std::string& name) {
  const std::size_t colon = name.rfind(':');
  if (colon == name.npos || path_exists(name)) {
    return {name, std::nullopt};
  }
  double weight = 0.0;
  const char* end = name.data() + name.size();
  const auto [stopped, fault] = std::from_chars(name.data() + colon + 1, end, weight);
  if (fault != std::errc() || stopped != end) {
    return {name, std::nullopt};
  }
  return {name.substr(0, colon), weight};
}

Json recipe_of_schedule(const UptrainSettings& settings) {
  Json recipe = {{"schedule", name_of(settings.schedule)},
                 {"learning_rate", settings.peak_learning_rate()},
                 {"warmup_steps", or_null(settings.warmup_steps)}};
  if (settings.found_rate) {
    recipe["found_learning_rate"] = true;
  }
  if (settings.schedule == LrScheduleKind::kInverseSqrt) {
    recipe["start_step"] = settings.start_step.value_or(0);
  } else if (settings.schedule != LrScheduleKind::kConstant) {
    recipe["min_learning_rate_ratio"] = settings.min_learning_rate_ratio;
  }
  if (settings.schedule == LrScheduleKind::kWarmupStableDecay) {
    recipe["decay_steps"] = or_null(settings.decay_steps);
  }
  return recipe;
}

void add_teacher_recipe(Json& recipe, const UptrainSettings& settings) {
  const TeacherSettings& teacher = settings.teacher;
  if (teacher.any()) {
    recipe["teacher_weight"] = teacher.distillation.weight;
    recipe["teacher_temperature"] = teacher.distillation.temperature;
  }
  if (teacher.present()) {
    recipe["teacher_precision"] = name_of(settings.teacher_precision());
  }
  if (teacher.attention_weight > 0) {
    recipe["attention_weight"] = teacher.attention_weight;
  }
}

void add_data_recipe(Json& recipe, const UptrainSettings& settings) {
  if (!settings.data_weights.empty()) {
    recipe["data_weights"] = settings.data_weights;
  }
  if (settings.documents.separate) {
    recipe["documents"] = "separate";
    if (const auto& mark = settings.documents.mark) {
      recipe[mark->ends ? "document_end" : "document_start"] = mark->token;
    }
  }
}

// The settings that affect a single step.
void check_step(Faults& faults, const UptrainSettings& settings) {
  faults.at_least(1, "context", settings.sequence_length.value_or(1));
  faults.at_least(1, "batch", settings.batch);
  faults.at_least(1, "accumulation", settings.accumulation);
  check_optimizer(faults, settings.optimizer);
  faults.require(settings.memory != MemoryMode::kCompact || settings.precision == Precision::kBf16,
                 "memory compact splits bf16 weights: add --dtype bf16");
  faults.require(settings.memory != MemoryMode::kHost || !settings.device.is_cpu(),
                 "memory host is for GPUs: on a CPU everything is in host memory already");
  faults.within(0, 1e9, "clipping norm", settings.max_gradient_norm);
}

}  // namespace

void UptrainSettings::validate() const {
  Faults faults;
  check_length(faults, *this);
  faults.require(!data.empty(), "no training data is given");
  faults.require(!output.empty(), "no output is named");
  check_step(faults, *this);
  check_ranks(faults, *this);
  check_schedule(faults, *this);
  check_teacher(faults, teacher);
  faults.at_least(0, "steps between evaluations", eval_every);
  faults.at_least(1, "evaluation tokens", eval_max_tokens.value_or(1));
  faults.at_least(0, "steps between saved states", save_every);
  faults.require(eval_every == 0 || !eval_data.empty(), "evaluation needs evaluation data");
  faults.report();
}

void UptrainSettings::validate_step() const {
  Faults faults;
  check_step(faults, *this);
  faults.report();
}

void set_data(UptrainSettings& settings, const std::vector<std::string>& names) {
  settings.data.clear();
  settings.data_weights.clear();
  for (const std::string& name : names) {
    const auto [path, weight] = split_weight(name);
    settings.data.push_back(path);
    if (weight) {
      settings.data_weights.push_back(*weight);
    }
  }
  if (!settings.data_weights.empty() && settings.data_weights.size() != settings.data.size()) {
    throw_usage("{} of {} data files have a weight: give one to all, or to none",
                settings.data_weights.size(), settings.data.size());
  }
}

Json recipe_of(const UptrainSettings& settings) {
  Json sizes = Json::array();
  for (const std::filesystem::path& path : settings.data) {
    std::error_code fault;
    sizes.push_back(std::filesystem::file_size(path, fault));
  }
  Json recipe = {{"alpha", or_null(settings.alpha)},
                 {"pretrain_steps", or_null(settings.pretrain_steps)},
                 {"pretrain_tokens", or_null(settings.pretrain_tokens)},
                 {"steps", or_null(settings.steps)},
                 {"sequence_length", or_null(settings.sequence_length)},
                 {"batch", settings.batch},
                 {"accumulation", settings.accumulation},
                 {"trained", name_of(settings.trained)}};
  recipe.update(recipe_of_schedule(settings));
  recipe.update(recipe_of_optimizer(settings.optimizer));
  add_teacher_recipe(recipe, settings);
  add_data_recipe(recipe, settings);
  recipe.update({{"max_gradient_norm", settings.max_gradient_norm},
                 {"seed", settings.seed},
                 {"precision", name_of(settings.precision)},
                 {"data_bytes", std::move(sizes)}});
  return recipe;
}

std::int64_t fraction_of(double alpha, std::int64_t total) {
  const double product = alpha * static_cast<double>(total);
  const double nearest = std::round(product);
  // Two roundings (of alpha, of the product) are each off by less than 2^-53 of it.
  const bool whole = std::abs(product - nearest) <= product * 0x1p-51;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(whole ? nearest : std::ceil(product)));
}

}  // namespace regroup

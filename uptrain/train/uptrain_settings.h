// Settings of an uptraining run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "formats/base/json.h"
#include "uptrain/model/device.h"
#include "uptrain/ops/loss.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/lr_schedule.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/optimizer.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {

/// Of AdamW and Adafactor, where nothing else is known.
inline constexpr double kUsualLearningRate = 2e-4;

/// The teacher of a run: a model, or its stored logits.
struct TeacherSettings {
  std::filesystem::path model;   ///< empty: none
  std::filesystem::path logits;  ///< see TeacherLogitsCache; empty: none
  bool any_source = false;       ///< `logits` may come from another model than the student's source
  DistillationSettings distillation;
  std::optional<Precision> precision;  ///< of the model; default: the student's
  /// Weight of attention distillation, added to the loss; see AttentionDistillation. Needs the
  /// model.
  double attention_weight = 0.0;

  /// Whether the model runs in each step.
  bool present() const { return !model.empty(); }
  bool any() const { return present() || !logits.empty(); }
};

/// What each of several ranks holds. Does not belong to the recipe.
struct Sharding {
  /// Only the weights that it updates and those of the blocks at work, see ShardedWeights;
  /// otherwise all weights.
  bool weights = false;
  /// With `weights`: how many times all ranks together hold the weights. Each copy is on as many
  /// consecutive ranks (hybrid sharding, Zhao et al. 2023, https://arxiv.org/abs/2304.11277).
  std::int64_t copies = 1;

  bool operator==(const Sharding&) const = default;
};

/// Lengths are in tokens, batches in sequences. Planning derives what is not set.
struct UptrainSettings {
  std::filesystem::path model;
  std::filesystem::path output;
  std::vector<std::filesystem::path> data;
  std::vector<double> data_weights;  ///< one per file, or none: proportional to their sizes

  DocumentSettings documents;  ///< of these files and of eval_data

  // The length of the run: `steps`, or the fraction `alpha` of one of the two pretraining lengths.
  std::optional<double> alpha;
  std::optional<std::int64_t> pretrain_steps;
  std::optional<std::int64_t> pretrain_tokens;
  std::optional<std::int64_t> steps;
  /// The model whose published length that is, and the reference; empty: it was given.
  std::string published;

  std::optional<std::int64_t>
      sequence_length;            ///< default: 1024, or the model's positions if fewer
  std::int64_t batch = 8;         ///< windows at a time
  std::int64_t accumulation = 1;  ///< such batches in one step, of all ranks together
  std::int64_t ranks = 1;         ///< processes that share the batches of a step
  std::int64_t local_ranks = 1;   ///< of these, on this machine
  /// Consecutive ranks that share each sequence (sequence parallelism). Does not belong to the
  /// recipe.
  std::int64_t sequence_ranks = 1;
  Sharding sharding;
  bool sharding_is_open = false;  ///< planning chooses it, see choose_sharding()

  TrainedWeights trained = TrainedWeights::kAll;
  TaskSettings task;  ///< its seed is not used, `seed` is

  LrScheduleKind schedule = LrScheduleKind::kCosine;
  /// The peak. Default: found by trials (see RateTrials), else 2e-4; 1 for kInverseSqrt.
  std::optional<double> learning_rate;
  bool found_rate = false;               ///< whether trials set it
  double min_learning_rate_ratio = 0.1;  ///< the last learning rate over the peak
  /// Default: one step in fifty, at least one; none for kInverseSqrt.
  std::optional<std::int64_t> warmup_steps;
  std::optional<std::int64_t> decay_steps;  ///< of kWarmupStableDecay; default: one in ten
  std::optional<std::int64_t> start_step;   ///< of kInverseSqrt; default: `pretrain_steps`, or 0
  OptimizerSettings optimizer;
  TeacherSettings teacher;
  double max_gradient_norm = 1.0;  ///< 0: no clipping
  std::uint64_t seed = 0;          ///< of the order of the data

  Precision precision = Precision::kFp32;  ///< of the model; master weights are always fp32
  bool recomputing = false;  ///< activation checkpointing, see Transformer::set_recomputing()
  /// Default: planning chooses the first that fits, see MemoryChoice. Does not belong to the
  /// recipe: saved states are the same in all modes.
  std::optional<MemoryMode> memory;
  c10::Device device = c10::kCPU;

  std::filesystem::path eval_data;  ///< empty: no evaluation
  std::int64_t eval_every = 0;      ///< steps between evaluations; 0: before and after only
  std::optional<std::int64_t> eval_max_tokens;  ///< of one evaluation; none: all
  bool keep_state = false;  ///< the last one stays, so that the complete run can be continued
  /// A resumed run that saved no state begins again; otherwise it refuses to go on.
  bool begin_again = false;
  std::int64_t save_every = 500;  ///< steps between saved states; 0: at the end and on a stop
  std::int64_t max_skipped_in_a_row = 10;  ///< steps with gradients that are not finite

  /// Ranks that hold one copy of the weights, and of masters and optimizer state, together.
  std::int64_t sharing_ranks() const { return ranks / sharding.copies; }

  /// Whether all ranks have to compute equally many passes: those over weights or sequences that
  /// they share out.
  bool passes_in_step() const { return sharding.weights || sequence_ranks > 1; }

  /// Shares into which the ranks divide the batches of a step.
  std::int64_t shares() const { return ranks / sequence_ranks; }

  MemoryMode memory_mode() const { return memory.value_or(MemoryMode::kFull); }
  Precision teacher_precision() const { return teacher.precision.value_or(precision); }

  double peak_learning_rate() const {
    return learning_rate.value_or(schedule == LrScheduleKind::kInverseSqrt ? 1.0
                                                                           : kUsualLearningRate);
  }

  /// Throws kUsage listing every fault in one line.
  void validate() const;

  /// The same for the settings of a single step, without lengths, data and output.
  void validate_step() const;
};

/// Reads training files named as FILE or FILE:WEIGHT into `settings`. Throws kUsage if only some
/// have a weight.
void set_data(UptrainSettings& settings, const std::vector<std::string>& names);

/// The recorded settings that determine the result; a resumed run must have the same. Includes the
/// sizes of the data files, but no paths.
Json recipe_of(const UptrainSettings& settings);

/// ⌈alpha · total⌉, at least 1; a product within rounding error of a whole number is that number,
/// so that 0.05 · 1000 is 50.
std::int64_t fraction_of(double alpha, std::int64_t total);

}  // namespace regroup

#include "uptrain/run/run_record.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/staged_directory.h"
#include "formats/version.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/save_parameters.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/rank_agreement.h"

namespace regroup {

namespace {

// The teacher, on the student's device. `shards` gets what holds its weights if they are shared
// out.
std::optional<Transformer> load_teacher(const UptrainSettings& settings, const Model& source,
                                        ProcessGroup* group,
                                        std::unique_ptr<ShardedWeights>& shards) {
  if (!settings.teacher.present()) {
    return std::nullopt;
  }
  const at::ScalarType type = scalar_type_of(settings.teacher_precision());
  const Model model = open_teacher(settings, source);
  if (!settings.sharding.weights || group == nullptr) {
    return load_transformer(model, type, settings.device);
  }
  const Parameters weights = parameters_without_memory(model.spec, type, settings.device);
  shards = load_share(group->sharing(), weights, model.spec, model.checkpoint, {});
  std::optional<Transformer> teacher(std::in_place, model.spec, weights);
  teacher->set_block_weights(shards.get());
  return teacher;
}

std::optional<ZeroPartition> partition_of(ProcessGroup* group, const UptrainSettings& settings,
                                          const Parameters& trained) {
  if (group == nullptr) {
    return std::nullopt;
  }
  group->divide(static_cast<int>(settings.sharding.copies));
  group->divide_sequences(static_cast<int>(settings.sequence_ranks));
  return std::optional<ZeroPartition>(std::in_place, *group, trained);
}

Parameters make_weights(const Model& source, const UptrainSettings& settings) {
  const at::ScalarType type = scalar_type_of(settings.precision);
  return settings.sharding.weights
             ? parameters_without_memory(source.spec, type, settings.device)
             : load_parameters(source.spec, source.checkpoint, type, settings.device);
}

// The names of all trained tensors that other ranks hold.
std::set<std::string> names_elsewhere(ProcessGroup& group, std::span<const StateTensor> trained) {
  Json own = Json::array();
  for (const StateTensor& tensor : trained) {
    own.push_back(tensor.name);
  }
  const std::vector<std::string> all = group.exchange(own.dump());
  std::set<std::string> names;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (static_cast<int>(rank) != group.rank()) {
      for (const Json& name : Json::parse(all[rank])) {
        names.insert(name.get<std::string>());
      }
    }
  }
  return names;
}

// Null if the file is not named, or cannot be read: run_uptraining() says so.
Json digest_if_readable(const std::filesystem::path& path) {
  try {
    return path.empty() ? Json() : Json(digest_of(TokenFile::open(path)));
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    return {};
  }
}

}  // namespace

RunLoss::RunLoss(const UptrainPlan& plan, const Model& source, Transformer& student,
                 ProcessGroup* group)
    : loss_(student, plan.task),
      sequences_(ranks_of_sequence(group)),
      teacher_(load_teacher(plan.settings, source, group, teacher_shards_)) {
  const TeacherSettings& teacher = plan.settings.teacher;
  if (teacher_) {
    teacher_->set_sequence_part(sequences_ ? &*sequences_ : nullptr);
    loss_.set_teacher(*teacher_, teacher.distillation);
  }
  if (teacher.attention_weight > 0) {
    loss_.set_attention(attention_.emplace(student, teacher_.value()), teacher.attention_weight);
  }
  if (has_balance_loss(student.spec())) {
    loss_.set_router_balance(balance_.emplace(student));
  }
  if (!teacher.logits.empty()) {
    loss_.set_answers(answers_.emplace(TeacherLogitsCache::open(teacher.logits)),
                      teacher.distillation);
  }
}

TrainedModel::TrainedModel(const Model& source, const UptrainSettings& settings,
                           ProcessGroup* group)
    : TrainedModel(source, settings, trained_tensors(source.spec, settings.trained), group) {}

TrainedModel::TrainedModel(const Model& source, const UptrainSettings& settings,
                           std::span<const std::string> trained, ProcessGroup* group)
    : settings_(settings),
      weights_(make_weights(source, settings)),
      trained_(weights_.only(trained)),
      partition_(partition_of(group, settings, trained_)),
      shards_(settings.sharding.weights
                  ? load_share(partition_.value().sharing(), weights_, source.spec,
                               source.checkpoint, partition_->owners())
                  : nullptr),
      sequences_(ranks_of_sequence(group)),
      masters_(own_masters(source, trained)),
      model_(source.spec, weights_),
      frozen_(source.spec, settings.trained, masters_),
      optimizer_(make_optimizer(masters_, settings.optimizer)) {
  model_.set_recomputing(settings.recomputing);
  model_.set_block_weights(shards_.get());
  model_.set_sequence_part(sequences_ ? &*sequences_ : nullptr);
}

MasterWeights TrainedModel::own_masters(const Model& source,
                                        std::span<const std::string> trained) const {
  const std::vector<std::string> names =
      partition_ ? partition_->own_names() : std::vector(trained.begin(), trained.end());
  const MemoryMode mode = settings_.memory_mode();
  const auto load = [&](at::Device device, std::span<const std::string> wanted) {
    const Parameters loaded =
        load_parameters(source.spec, source.checkpoint, at::kFloat, device, wanted);
    return in_place(loaded.entries());
  };
  if (mode == MemoryMode::kHost) {
    return {mode, load(at::kCPU, names)};
  }
  if (settings_.precision == Precision::kFp32) {
    return MasterWeights(trained_.only(names));
  }
  if (mode == MemoryMode::kFull) {
    return {mode, load(settings_.device, names), trained_.only(names).tensors()};
  }
  const Parameters own = trained_.only(names);
  std::vector<StateTensor> masters;
  for (const auto& [name, weight] : own.entries()) {
    masters.push_back(split_tensor(name, weight));
    masters.back().write(load(settings_.device, {&name, 1}).front().value);
  }
  return {mode, std::move(masters)};
}

std::vector<StateTensor> TrainedModel::state() const {
  std::vector<StateTensor> tensors = in_place(optimizer_->state());
  for (StateTensor master : masters_.tensors()) {
    master.name = "weight." + master.name;
    tensors.push_back(std::move(master));
  }
  return tensors;
}

Trainer TrainedModel::trainer(LossFunction loss, const DataLoader& data,
                              const LrSchedule& schedule) {
  ZeroPartition* partition = partition_ ? &*partition_ : nullptr;
  return Trainer(std::move(loss), trained_, masters_, frozen_, *optimizer_, data, settings_,
                 schedule, partition, shards_.get());
}

void save_model_from_ranks(ProcessGroup& group, const Model& source,
                           std::span<const StateTensor> trained, const std::string& config_text,
                           const std::filesystem::path& destination) {
  refuse_output_inside(source, destination);
  const std::set<std::string> elsewhere = names_elsewhere(group, trained);
  std::optional<StagedDirectory> staged;
  std::optional<ParametersWriter> writer;
  group.on_first([&] {
    staged.emplace(destination);
    writer.emplace(source.spec, source.checkpoint, staged->path());
  });
  const std::string directory = group.exchange(staged ? staged->path().string() : "").front();
  const std::string fault = first_fault(&group, fault_of([&] {
    if (!writer) {
      writer.emplace(source.spec, source.checkpoint, directory, OutputFiles::kJoined);
    }
    writer->write(trained, elsewhere);
    writer->finish();
  }));
  if (!fault.empty()) {
    throw_environment("the result cannot be written: {}", fault);
  }
  group.on_first([&] {
    write_other_files(source, config_text, staged->path());
    staged->publish();
  });
}

Json asked_of_rank(const UptrainPlan& plan, const Model& source, bool resume) {
  const UptrainSettings& settings = plan.settings;
  Json asked = plan.recipe;
  asked.update({{"version", kVersion},
                {"model", fingerprint_of(source)},
                {"resume", resume},
                {"device", settings.device.is_cpu() ? "cpu" : "cuda"},
                {"memory", name_of(plan.memory_choice.mode)},
                {"shard", settings.sharding.weights ? "full" : "optimizer"},
                {"replicate", settings.sharding.copies},
                {"sequence_parallel", settings.sequence_ranks},
                {"activation_checkpointing", settings.recomputing},
                {"save_every", settings.save_every},
                {"eval_every", settings.eval_every},
                {"eval_data_digest", digest_if_readable(settings.eval_data)},
                {"eval_max_tokens", settings.eval_max_tokens.value_or(0)}});
  return asked;
}

std::string config_of_result(const UptrainPlan& plan, const Model& source,
                             const TrainingProgress& progress,
                             const std::optional<Evaluation>& after) {
  TrainingRecord training{.version = std::string(kVersion),
                          .steps = plan.schedule.steps,
                          .tokens = plan.tokens,
                          .skipped_steps = progress.skipped,
                          .sequence_length = plan.sequence_length};
  for (const auto& [key, value] : plan.recipe.items()) {
    if (key != "steps" && key != "data_bytes" && !key.ends_with("_digest") && !value.is_null()) {
      training.recipe[key] = value;
    }
  }
  if (after) {
    training.eval_loss_before = progress.loss_before;
    training.eval_loss = after->loss;
    training.eval_tokens = after->tokens;
  }
  ConversionRecord facts;
  if (Json steps = record_of(source).steps(); !steps.empty()) {
    facts.history = std::move(steps);
  }
  facts.training = std::move(training);
  return config_with_facts(source.config_text, facts);
}

}  // namespace regroup

#include "uptrain/run/trained_model.h"

#include <span>
#include <utility>

namespace regroup {
namespace {

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

}  // namespace

TrainedModel::TrainedModel(const Model& source, const UptrainSettings& settings,
                           ProcessGroup* group)
    : TrainedModel(source, settings, trained_tensors(source.spec, settings.trained), group) {}

TrainedModel::TrainedModel(const Model& source, const UptrainSettings& settings,
                           std::span<const std::string> trained, ProcessGroup* group)
    : weights_(make_weights(source, settings)),
      trained_(weights_.only(trained)),
      partition_(partition_of(group, settings, trained_)),
      shards_(settings.sharding.weights
                  ? load_share(partition_.value().sharing(), weights_, source.spec,
                               source.checkpoint, partition_->owners())
                  : nullptr),
      sequences_(ranks_of_sequence(group)),
      masters_(own_masters(source, settings, trained)),
      model_(source.spec, weights_),
      frozen_(source.spec, settings.trained, masters_),
      optimizer_(make_optimizer(masters_, settings.optimizer)) {
  model_.set_recomputing(settings.recomputing);
  model_.set_block_weights(shards_.get());
  model_.set_sequence_part(sequences_ ? &*sequences_ : nullptr);
}

MasterWeights TrainedModel::own_masters(const Model& source, const UptrainSettings& settings,
                                        std::span<const std::string> trained) const {
  const std::vector<std::string> names =
      partition_ ? partition_->own_names() : std::vector(trained.begin(), trained.end());
  const MemoryMode mode = settings.memory.value_or(MemoryMode::kFull);
  const auto load = [&](at::Device device, std::span<const std::string> wanted) {
    const Parameters loaded =
        load_parameters(source.spec, source.checkpoint, at::kFloat, device, wanted);
    return in_place(loaded.entries());
  };
  if (mode == MemoryMode::kHost) {
    return {mode, load(at::kCPU, names)};
  }
  if (settings.precision == Precision::kFp32) {
    return MasterWeights(trained_.only(names));
  }
  if (mode == MemoryMode::kFull) {
    return {mode, load(settings.device, names), trained_.only(names).tensors()};
  }
  const Parameters own = trained_.only(names);
  std::vector<StateTensor> masters;
  for (const auto& [name, weight] : own.entries()) {
    masters.push_back(split_tensor(name, weight));
    masters.back().write(load(settings.device, {&name, 1}).front().value);
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
                              const LoopSettings& settings) {
  return {std::move(loss), trained_, masters_, frozen_,
          *optimizer_,     data,     settings, partition_ ? &*partition_ : nullptr,
          shards_.get()};
}

}  // namespace regroup

#include "uptrain/run/trained_model.h"

#include <utility>

namespace regroup {
namespace {

std::optional<ZeroPartition> partition_of(ProcessGroup* group, const Parameters& trained) {
  return group != nullptr ? std::optional<ZeroPartition>(std::in_place, *group, trained)
                          : std::nullopt;
}

}  // namespace

TrainedModel::TrainedModel(const Model& source, const UptrainSettings& settings,
                           ProcessGroup* group)
    : weights_(load_parameters(source.spec, source.checkpoint, scalar_type_of(settings.precision),
                               settings.device)),
      trained_(weights_.only(trained_tensors(source.spec, settings.trained))),
      partition_(partition_of(group, trained_)),
      masters_(own_masters(source, settings)),
      model_(source.spec, weights_),
      frozen_(source.spec, settings.trained, masters_),
      optimizer_(make_optimizer(masters_, settings.optimizer)) {
  model_.set_recomputing(settings.recomputing);
}

Parameters TrainedModel::own_masters(const Model& source, const UptrainSettings& settings) const {
  const std::vector<std::string> names =
      partition_ ? partition_->own_names() : trained_tensors(source.spec, settings.trained);
  return settings.precision == Precision::kFp32
             ? trained_.only(names)
             : load_parameters(source.spec, source.checkpoint, at::kFloat, settings.device, names);
}

std::vector<Parameters::Entry> TrainedModel::state() const {
  std::vector<Parameters::Entry> tensors = optimizer_->state();
  for (const Parameters::Entry& entry : masters_.entries()) {
    tensors.push_back({"weight." + entry.name, entry.value});
  }
  return tensors;
}

Trainer TrainedModel::trainer(LossFunction loss, const DataLoader& data,
                              const LoopSettings& settings) {
  return {std::move(loss), trained_, masters_, frozen_,
          *optimizer_,     data,     settings, partition_ ? &*partition_ : nullptr};
}

}  // namespace regroup

#include "cli/measure/refit_options.h"

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/device.h"
#include "uptrain/train/refit.h"

namespace regroup {

std::int64_t context_of(const Model& source, const RefitOptions& options) {
  const std::int64_t default_context = WindowSettings().context;
  return options.context > 0 ? options.context : usual_context(source, default_context);
}

void check_computable(const char* option, const Model& source) {
  if (!source.spec.not_computable.empty()) {
    throw_usage("{}: {} cannot be computed: {}", option, printable(source.spec.architecture),
                printable(source.spec.not_computable));
  }
}

std::string solving_device(const RefitOptions& options) {
  return parse_device(options.device).str();
}

std::shared_ptr<AttentionRefiner> make_refiner(const Model& source, const RefitOptions& options,
                                               const std::atomic<bool>& stop) {
  check_computable("--refit", source);
  set_compute_threads(options.threads);
  RefitSettings settings;
  settings.windows.context = context_of(source, options);
  settings.windows.batch = options.batch;
  settings.windows.max_tokens = options.max_tokens;
  settings.steps = options.steps;
  settings.learning_rate = options.learning_rate;
  settings.device = parse_device(options.device);
  std::shared_ptr<AttentionRefiner> refiner;
  with_torch_errors([&] {
    refiner = std::make_shared<Refit>(source, TokenFile::open(options.data), settings, stop);
  });
  return refiner;
}

}  // namespace regroup

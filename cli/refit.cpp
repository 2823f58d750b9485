#include "cli/refit.h"

#include <algorithm>

#include "cli/sleeping_threads.h"
#include "formats/error.h"
#include "formats/printable.h"
#include "uptrain/device.h"
#include "uptrain/refit.h"

namespace regroup {

std::shared_ptr<AttentionRefiner> make_refiner(const Model& source, const RefitOptions& options,
                                               const std::atomic<bool>& stop) {
  if (options.data.empty()) {
    return nullptr;
  }
  if (!source.spec.not_computable.empty()) {
    throw_usage("--refit: {} cannot be computed: {}", printable(source.spec.architecture),
                printable(source.spec.not_computable));
  }
  let_threads_sleep();
  set_compute_threads(options.threads);
  RefitSettings settings;
  settings.windows.context =
      options.context > 0 ? options.context
                          : std::min(settings.windows.context,
                                     source.spec.max_positions.value_or(settings.windows.context));
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

#include "cli/measure/refit_options.h"
#include "formats/base/error.h"

namespace regroup {

std::string solving_device(const RefitOptions& options) {
  if (options.device != "cpu") {
    throw_usage("--device: this program was built without LibTorch");
  }
  return options.device;
}

std::shared_ptr<AttentionRefiner> make_refiner(const Model&, const RefitOptions& options,
                                               const std::atomic<bool>&) {
  if (!options.data.empty()) {
    throw_usage("--refit: this program was built without LibTorch");
  }
  return nullptr;
}

}  // namespace regroup

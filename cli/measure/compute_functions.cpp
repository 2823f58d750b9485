#include "cli/measure/compute_functions.h"

#include "formats/base/error.h"

namespace regroup {
namespace {

const ComputeFunctions* provided = nullptr;

}  // namespace

void set_compute_functions(const ComputeFunctions& functions) { provided = &functions; }

const ComputeFunctions* compute_functions() { return provided; }

const ComputeFunctions& compute_for(const char* option) {
  if (provided == nullptr) {
    throw_usage("{}: this program was built without LibTorch", option);
  }
  return *provided;
}

}  // namespace regroup

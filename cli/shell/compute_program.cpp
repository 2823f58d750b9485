#include "cli/shell/compute_program.h"

namespace regroup {
namespace {

void (*execute_compute)() = nullptr;

}  // namespace

void set_exec_compute(void (*execute)()) { execute_compute = execute; }

void exec_compute() {
  if (execute_compute != nullptr) {
    execute_compute();
  }
}

}  // namespace regroup

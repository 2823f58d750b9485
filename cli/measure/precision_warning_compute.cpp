#include "cli/measure/precision_warning.h"

namespace regroup {

void warn_of_device(c10::Device device, const Console& console) {
  for (const std::string& line : device_notes(device)) {
    console.note("note: " + line);
  }
}

void warn_of_precision(Precision precision, c10::Device device, const Console& console) {
  if (precision == Precision::kBf16 && device.is_cpu() && !cpu_multiplies_bf16()) {
    console.note(
        "warning: this CPU has no AVX-512; matrix products in bf16 can take 40 times as long as in "
        "fp32");
  }
  warn_of_device(device, console);
}

}  // namespace regroup

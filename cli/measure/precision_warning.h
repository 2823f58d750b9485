// A warning for a precision that the processor has no instructions for.
#pragma once

#include "cli/terminal/console.h"
#include "uptrain/model/device.h"

namespace regroup {

/// A line on stderr where computing in `precision` is slow on `device`, else nothing.
void warn_of_precision(Precision precision, c10::Device device, const Console& console);

}  // namespace regroup

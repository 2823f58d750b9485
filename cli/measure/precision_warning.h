// Warns of a precision that is slow on this processor.
#pragma once

#include "cli/terminal/console.h"
#include "uptrain/model/device.h"

namespace regroup {

/// Prints a line on stderr if matrix products in `precision` are slow on `device`.
void warn_of_precision(Precision precision, c10::Device device, const Console& console);

}  // namespace regroup

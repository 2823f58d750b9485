// Warns of a precision that is slow on this processor, and of kernels that a GPU does not use.
#pragma once

#include "cli/shell/console.h"
#include "uptrain/model/device.h"

namespace regroup {

/// Prints device_notes() on stderr.
void warn_of_device(c10::Device device, const Console& console);

/// The same, and a line if matrix products in `precision` are slow on `device`.
void warn_of_precision(Precision precision, c10::Device device, const Console& console);

}  // namespace regroup

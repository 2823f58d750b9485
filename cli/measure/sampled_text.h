// Text that a model writes itself, as a token file.
#pragma once

#include <filesystem>

#include "cli/shell/console.h"
#include "formats/model/model.h"
#include "uptrain/run/sample.h"

namespace regroup {

/// Writes the sequences of sample() to `output`, a new .bin with an .idx, each as a document, and
/// shows the progress. Throws what sample() throws.
void write_samples(const Model& source, const SampleSettings& settings,
                   const std::filesystem::path& output, const Console& console);

}  // namespace regroup

// Options of `regroup convert` and `regroup expand`.
#pragma once

#include "cli/measure/conversion_options.h"
#include "cli/shell/command.h"

namespace regroup {

/// `options` must outlive `command`.
void add_convert_options(Command command, ConvertOptions& options);
void add_expand_options(Command command, ConvertOptions& options);

/// Completes the request that the options describe. Throws kUsage if it is empty or invalid.
void set_convert_request(ConvertOptions& options);
void set_expand_request(ConvertOptions& options);

/// Sets the windows that were not given: two of 512 tokens, of encoders eight of 128, and none
/// longer than the model's positions.
void choose_windows(const Model& source, ConvertOptions::Refit& options);

/// Throws kUsage for an option that has no effect on this model, and for a destination with the
/// extension of another kind of file.
void check_effects(const ConvertOptions& options, const Model& source, const ConversionPlan& plan);

}  // namespace regroup

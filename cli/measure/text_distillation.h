// Distillation in `regroup convert --text`: the result, before it is published, learns to predict
// what its source predicts.
#pragma once

#include <filesystem>
#include <string>

#include "cli/measure/refit_options.h"
#include "cli/measure/text_conversion.h"
#include "cli/shell/console.h"
#include "converter/convert/conversion_plan.h"
#include "formats/base/json.h"
#include "formats/model/model.h"

namespace regroup {

/// The reason why the result of `plan` cannot be distilled on this machine; empty if it can.
std::string why_not_distilled(const Model& source, const ConversionPlan& plan,
                              const RefitOptions& options);

/// "about 12 min (sample 3 min, distill 9 min); 2.8 GiB of memory": the time that each stage of a
/// conversion with the text is expected to take, by the machine's speed of matrix products, which
/// takes a second to measure, and the memory of distillation. Throws what parse_device() throws.
/// `text`: before complete_text(). `calibrates`: whether calibrate_on_text() is one of them.
/// `refit_steps` may be 0.
std::string expected_cost(const Model& source, const RefitOptions& options,
                          const PreparedText& text, bool calibrates, std::int64_t refit_steps);

/// The recipe of distillation, for the record.
Recipe distillation_recipe(const PreparedText& text, const RefitOptions& options);

/// Distils the result of `plan` in the directory `result`, records there what that achieved, with
/// new checksums, and returns this fact. See distill().
DistillOutcome distill_on_text(const Model& source, const ConversionPlan& plan,
                               const PreparedText& text, const RefitOptions& options,
                               const std::filesystem::path& result, const Console& console);

}  // namespace regroup

// What `regroup convert --text` adds to a conversion.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/commands/convert_options.h"
#include "cli/measure/text_conversion.h"
#include "cli/report/conversion_report.h"
#include "cli/shell/console.h"
#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

/// Prepares the text of --text, and sets the method and the options that it implies unless they are
/// given. None without --text. Throws kUsage for options without effect.
std::optional<PreparedText> use_text(const Model& source, ConversionRequest& request,
                                     ConvertOptions& options, Console& console);

/// Compares the result, which is not published yet, with its source and with pooling by the mean,
/// and records what it finds. A comparison that fails is a warning and must not cost the result.
std::optional<HeldOut> compare_on_held_out(const PreparedText& text,
                                           const ConversionRequest& request,
                                           const ConversionReport& report,
                                           const std::filesystem::path& result,
                                           const Console& console);

}  // namespace regroup

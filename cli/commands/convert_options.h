// Options of `regroup convert` and `regroup expand`, and what --text adds to a conversion.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/measure/kv_budget.h"
#include "cli/measure/refit_options.h"
#include "cli/measure/text_conversion.h"
#include "cli/report/conversion_report.h"
#include "cli/shell/command.h"
#include "cli/shell/console.h"
#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

struct ConvertOptions {
  std::optional<Command> command;
  ConversionRequest request;  ///< what options set as it is; see convert_request()
  std::string source;
  std::string destination;
  std::string layout;
  std::string attention = "self,cross";
  std::string container;
  std::string positions = "keep";
  std::string dtype;
  std::string loader = "auto";
  std::string pool = "mean";
  std::string grouping = "contiguous";
  std::string calibration;
  RefitOptions refit;
  KvBudgetOptions budget;
  TextOptions text;
  bool measure = false;
  bool any_text = false;
  bool skip_comparison = false;
  bool dry_run = false;
  bool json = false;

  bool given(const char* option) const { return command->given(option); }
};

/// `options` must outlive `command`.
void add_convert_options(Command command, ConvertOptions& options);
void add_expand_options(Command command, ConvertOptions& options);

/// The request that the options describe. Throws kUsage if it is empty or invalid.
ConversionRequest convert_request(const ConvertOptions& options);
ConversionRequest expand_request(const ConvertOptions& options);

/// Throws kUsage for an option that has no effect on this model, and for a destination with the
/// extension of another kind of file.
void check_effects(const ConvertOptions& options, const Model& source, const ConversionPlan& plan);

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

// Options of `regroup convert` and `regroup expand`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/measure/kv_budget.h"
#include "cli/measure/refit_options.h"
#include "cli/measure/text_conversion.h"
#include "cli/shell/command.h"
#include "converter/convert/conversion_plan.h"

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

}  // namespace regroup

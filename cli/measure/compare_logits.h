// Compares the logits of source and result: that a result in another form computes the same, and
// for `regroup verify --logits` how much predictions differ.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/shell/command.h"
#include "cli/shell/console.h"
#include "cli/shell/text.h"
#include "converter/convert/conversion_plan.h"
#include "formats/base/json.h"
#include "formats/model/model.h"

namespace regroup {

struct OutputComparison {
  double largest_difference = 0.0;  ///< of two logits for the same token
  double largest_output = 0.0;      ///< largest logit
  /// If the requested dtype rounds the weights: the difference to a reference rounded to that
  /// dtype, which shows the effect of the other form alone.
  std::optional<double> without_rounding = std::nullopt;
};

/// Compares the logits of `result`, a directory, with those of `source` pooled according to
/// `request`, on random tokens. Throws kDifference if they differ by more than rounding explains.
/// Returns none, with a note, if the model cannot be computed.
std::optional<OutputComparison> compare_with_source(const Model& source,
                                                    const ConversionRequest& request,
                                                    const ConversionPlan& plan,
                                                    const std::filesystem::path& result,
                                                    const Console& console);

struct LogitsOptions {
  bool enabled = false;
  std::string data;          ///< a token file; empty: random tokens
  std::int64_t context = 0;  ///< tokens in a window; 0: 512, or the model's positions if fewer
  std::int64_t max_tokens = 4096;
  std::string device = "cpu";
  int threads = 0;  ///< 0: one per core
};

/// The measurements, described in uptrain/train/text_quality.h.
struct LogitsResult {
  std::string data;  ///< the token file; empty: random tokens
  std::int64_t context = 0, tokens = 0;
  double kl = 0.0, largest_kl = 0.0;
  double mean_difference = 0.0, largest_difference = 0.0, largest_logit = 0.0;
  double agreement = 0.0;
};

/// Adds --logits and the options that need it.
void add_logits_options(Command command, LogitsOptions& options);

/// Checks the options before any work: both models can be computed and have the same vocabulary,
/// and the token file is valid.
void check_logits_options(const LogitsOptions& options, const Model& source, const Model& result);

/// Runs both models. Throws kBadInput if the result lacks tensors that its config requires.
LogitsResult measure_logits(const LogitsOptions& options, const Model& source, const Model& result,
                            const Console& console);

/// The measurements as names and values, and as JSON.
Facts logits_facts(const LogitsResult& result);
Json logits_json(const LogitsResult& result);

}  // namespace regroup

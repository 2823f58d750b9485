// Measures how much the predictions of source and result differ, for `regroup verify --logits`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/shell/command.h"
#include "cli/shell/console.h"
#include "formats/base/json.h"
#include "formats/model/model.h"

namespace regroup {

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

/// The measurements as names and values, as lines of text, and as JSON.
std::vector<std::pair<std::string, std::string>> logits_facts(const LogitsResult& result);
std::string logits_text(const LogitsResult& result);
Json logits_json(const LogitsResult& result);

}  // namespace regroup

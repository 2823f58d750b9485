// What `regroup verify --logits` measures: how far the predictions of source and result lie apart.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/options/command.h"
#include "cli/terminal/console.h"
#include "formats/json/json.h"
#include "formats/model/model.h"

namespace regroup {

struct LogitsOptions {
  bool asked = false;
  std::string data;          ///< a token file; empty: random tokens
  std::int64_t context = 0;  ///< tokens in a window; 0: 512, or the model's positions if fewer
  std::int64_t max_tokens = 4096;
  std::string device = "cpu";
  int threads = 0;  ///< 0: one per core
};

/// What was measured, see uptrain/layerwise/compare_predictions.h.
struct LogitsResult {
  std::string data;  ///< the token file; empty: random tokens
  std::int64_t context = 0, tokens = 0;
  double kl = 0.0, largest_kl = 0.0;
  double mean_difference = 0.0, largest_difference = 0.0, largest_logit = 0.0;
  double agreement = 0.0;
};

/// Adds --logits and what goes with it.
void add_logits_options(Command command, LogitsOptions& question);

/// Looks at the question before any work: both models can be computed and have one vocabulary, the
/// token file is one. Throws kUsage in a build without LibTorch.
void check_logits_options(const LogitsOptions& question, const Model& source, const Model& result);

/// Runs both models. Throws kBadInput for a result without the tensors that its config calls for.
LogitsResult measure_logits(const LogitsOptions& question, const Model& source, const Model& result,
                            const Console& console);

/// The answer as names and values for people, as lines of these, and for machines.
std::vector<std::pair<std::string, std::string>> logits_facts(const LogitsResult& answer);
std::string logits_text(const LogitsResult& answer);
Json logits_json(const LogitsResult& answer);

}  // namespace regroup

// The report of regroup eval, as text or JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/shell/console.h"
#include "uptrain/train/evaluate.h"
#include "uptrain/train/objective.h"

namespace regroup {

/// The result for windows of `context` tokens, or why the model does not support them.
struct ContextResult {
  std::int64_t context = 0;
  std::optional<Evaluation> evaluation;
  double seconds = 0.0;
  std::string obstacle;
};

struct EvalReport {
  std::string model;  ///< as given on the command line, like `data`
  std::string data;
  Objective objective = Objective::kNextToken;
  std::vector<std::string> warnings;
  std::vector<ContextResult> results;  ///< at least one; a single one has an evaluation
};

/// Prints one result as lines, several as a table.
void print_eval_report(const EvalReport& done, bool json, const Console& console);

}  // namespace regroup

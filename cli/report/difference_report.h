// The differences between two checkpoints, as tables and as JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/table.h"
#include "formats/inspect/checkpoint_difference.h"

namespace regroup {

Table differences_table(const std::vector<TensorDifference>& differences);
/// The same for a terminal, in up to two tables: only tensors whose values were compared have the
/// columns for values, which leaves room for the names of the others. `differences` is not empty.
std::string differences_text(const std::vector<TensorDifference>& differences,
                             const Console& console);
/// Shortens values to `max_bytes` (0: never).
Table settings_table(const std::vector<JsonDifference>& differences, std::size_t max_bytes = 60);

Json differences_json(const std::vector<TensorDifference>& differences);
Json settings_json(const std::vector<JsonDifference>& differences);

/// "2 tensors added, 1 removed, 4 of another shape, 3 of other values, 2 settings"; "nothing" if
/// there are no differences.
std::string text_of_counts(const std::vector<TensorDifference>& tensors,
                           const std::vector<JsonDifference>& settings);

}  // namespace regroup

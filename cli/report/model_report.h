// A checkpoint as text, tables or JSON: its summary, its tensors, its layers, its statistics,
// and its differences from another.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/shell/table.h"
#include "cli/shell/text.h"
#include "formats/base/json.h"
#include "formats/model/model_summary.h"
#include "formats/model/tensor_comparison.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// The sequences to compute the size of the KV cache for.
struct CacheLoad {
  std::uint64_t context = 4096;  ///< tokens
  std::uint64_t batch = 1;       ///< sequences
};

Json summary_json(const ModelSummary& summary, const CacheLoad& load);

/// In the order to print them.
Facts summary_facts(const ModelSummary& summary, const CacheLoad& load);

/// Where the checkpoint contradicts itself, then what its record warns of.
std::vector<std::string> model_warnings(const ModelSummary& summary);

/// Rows of tensors. Names that differ by their first number alone, and whose other cells are equal,
/// share one: "model.layers.0-29.self_attn.k_proj.weight".
class LayerRows {
 public:
  using Cells = std::vector<std::string>;

  /// `name` is the tensor's; `cells` are the others, in the table's order.
  void add(const std::string& name, Cells cells);
  /// In the order of the first name of each row: the name, printable, and the other cells.
  std::vector<std::pair<std::string, Cells>> rows() const;

 private:
  struct Row {
    std::string before, after;  // the number
    Cells cells;
    std::vector<std::int64_t> numbers;  // empty if the name has none
  };
  std::vector<Row> rows_;
  std::map<Cells, std::size_t> places_;  // by name and cells
};

/// Tensors in up to two tables: only those whose values were compared have the columns for values,
/// which leaves room for the names of the others. Layers share a row if they differ alike.
std::vector<Table> differences_tables(const std::vector<TensorDifference>& tensors);
/// Shortens values to `max_bytes` (0: never).
Table settings_table(const std::vector<JsonDifference>& differences, std::size_t max_bytes = 60);

/// Prints these tables.
void print_differences(const std::vector<TensorDifference>& tensors,
                       const std::vector<JsonDifference>& settings, const Console& console);

Json differences_json(const std::vector<TensorDifference>& differences);
Json settings_json(const std::vector<JsonDifference>& differences);

/// "2 tensors added, 1 removed, 4 of another shape, 3 of other values, 2 settings"; "nothing" if
/// there are no differences.
std::string text_of_counts(const std::vector<TensorDifference>& tensors,
                           const std::vector<JsonDifference>& settings);

/// Which tensors to list, and in which order.
struct TensorChoice {
  std::string filter = "*";    ///< a glob for names, in which * also matches dots
  std::string sort = "shard";  ///< "shard" (the order in the files), "name" or "bytes"
};

/// Throws kUsage if no name matches.
std::vector<const TensorInfo*> chosen_tensors(const Checkpoint& checkpoint,
                                              const TensorChoice& choice);

struct MeasuredTensor {
  const TensorInfo* tensor;
  TensorStatistics statistics;
};

Table tensors_table(const Checkpoint& checkpoint, const std::vector<const TensorInfo*>& tensors);
Table layers_table(const std::vector<LayerSummary>& layers, std::int64_t head_dim);
Table statistics_table(const std::vector<MeasuredTensor>& tensors);

Json tensors_json(const Checkpoint& checkpoint, const std::vector<const TensorInfo*>& tensors);
Json layers_json(const std::vector<LayerSummary>& layers, std::int64_t head_dim);
Json statistics_json(const std::vector<MeasuredTensor>& tensors);

}  // namespace regroup

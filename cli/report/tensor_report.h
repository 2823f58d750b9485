// The tensors of a checkpoint, its layers and its statistics, as tables and as JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/table.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/inspect/layer_summary.h"
#include "formats/inspect/tensor_statistics.h"
#include "formats/json/json.h"

namespace regroup {

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

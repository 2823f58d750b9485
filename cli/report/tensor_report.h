// The tensors, the layers and the numbers of a checkpoint, as tables and as JSON.
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
  std::string filter = "*";    ///< of names, a shell's pattern in which * spans dots
  std::string sort = "shard";  ///< "shard" (as they lie in their files), "name" or "bytes"
};

/// Throws kUsage where there is no tensor of such a name.
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

// All tensors of a conversion, on several threads: what is copied beside what is computed.
#pragma once

#include <atomic>

#include "converter/execute/execute_plan.h"
#include "converter/execute/tensor_checksums.h"

namespace regroup {

/// What writing needs; keeps references to all.
struct TensorWork {
  const ConversionPlan& plan;
  const Checkpoint& checkpoint;
  AttentionPooler& pooler;
  CheckpointWriter& writer;
  const ConversionProgress& progress;
  const std::atomic<bool>& stop;
  TensorChecksums& checksums;  ///< those of refitted tensors are put here
};

/// Writes every tensor of the plan, on up to `threads` threads (0: one per core). One begins with
/// what is computed, the others with what is copied, so that the device is busy while heads are
/// pooled. Throws what the first to fail throws, or kInterrupted once `stop` is true.
void write_tensors(const TensorWork& work, int threads);

}  // namespace regroup

// Writes all tensors of a conversion on several threads, copying and computing in parallel.
#pragma once

#include <atomic>

#include "converter/convert/execute_plan.h"
#include "converter/convert/tensor_parts.h"

namespace regroup {

/// Inputs of writing; keeps references to all.
struct TensorWork {
  const ConversionPlan& plan;
  const Checkpoint& checkpoint;
  AttentionPooler& pooler;
  CheckpointWriter& writer;
  const ConversionProgress& progress;
  const std::atomic<bool>& stop;
  TensorChecksums& checksums;  ///< receives those of refitted tensors
};

/// Writes every tensor of the plan, on up to `threads` threads (0: one per core). One thread starts
/// with computed tensors, the others with copied ones, so that the disk is busy while heads are
/// pooled. Throws what the first to fail throws, or kInterrupted once `stop` is true.
void write_tensors(const TensorWork& work, int threads);

}  // namespace regroup

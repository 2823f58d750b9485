// Kernels over rows. Several threads share a row: each gathers a part from every n-th pack of the
// row, the parts are combined in a fixed order, and each thread finishes its packs with the total.
//
// A row kernel `Work` has
//   using Part                             numbers of four bytes, without constructors
//   rows(), groups()                       groups of rows / groups adjacent rows, rounded up
//   Part gather(row, team)                 the part of a thread
//   static Part combine(Part, Part)
//   void finish(row, team, total)
#pragma once

#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

/// A thread among those that share a row.
struct Team {
  int thread, threads;
};

/// The rows of a group: begin … end - 1.
struct RowRange {
  std::int64_t begin, end;
};

template <typename Work>
REGROUP_KERNEL RowRange rows_of_group(const Work& work, std::int64_t group) {
  const std::int64_t each = (work.rows() - 1) / work.groups() + 1;
  const std::int64_t begin = group * each;
  const std::int64_t end = begin + each;
  return {begin, end < work.rows() ? end : work.rows()};
}

/// Whether one warp is enough for a row of that many packs; a whole block takes wider rows.
inline bool suits_warp(std::int64_t packs) { return packs <= 8 * kWarpThreads; }

/// Launches a row kernel for rows of `packs`; returns null, or what went wrong.
template <typename Work, typename Launcher>
const char* launch_rows(const Work& work, std::int64_t packs, const Launcher& launch) {
  return suits_warp(packs) ? launch.template rows<kWarpThreads>(work)
                           : launch.template rows<kBlockThreads>(work);
}

}  // namespace regroup::kernels

// One rank of a run of many, computed without the others: what it holds and in which order it talks
// to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "uptrain/train/uptrain_settings.h"

namespace regroup {

/// What a rank did in a few steps.
struct RankRecord {
  double loading = 0.0;            ///< the most bytes of the paper device before the first step
  double peak = 0.0;               ///< the most at all
  std::vector<std::string> calls;  ///< "broadcast 4096 from 1", in order, of all steps
  double received = 0.0;           ///< bytes per step: of weights
  double sent = 0.0;               ///< of gradients
};

/// Trains with rank `rank` of `settings.ranks` on the paper device. The other ranks are not there:
/// what they would send stays as it is, and all that is sent arrives when it is waited for.
RankRecord rank_alone(const UptrainSettings& settings, int rank);

}  // namespace regroup

// Suggests options for a run that does not fit in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "uptrain/run/uptrain_settings.h"

namespace regroup {

/// The same run with other options, as typed, and its memory in bytes.
struct LeanerRun {
  std::string options;
  double bytes = 0.0;
};

/// Runs that fit in `available` bytes by the estimate `bytes_of`: each single option that suffices,
/// those first that do not change the training result; if none does, several together; if these do
/// not suffice either, the run that takes least memory. A smaller batch comes with more
/// accumulation, so that steps stay the same.
std::vector<LeanerRun> leaner_runs(
    const UptrainSettings& settings, double available,
    const std::function<double(const UptrainSettings& settings)>& bytes_of);

}  // namespace regroup

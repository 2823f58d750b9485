// How a run that needs more memory than there is could be made to fit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "uptrain/run/uptrain_settings.h"

namespace regroup {

/// The same run with other options, as they are typed, and the bytes that it takes.
struct LeanerRun {
  std::string options;
  double bytes = 0.0;
};

/// What makes a run fit in `available` bytes by the estimate `bytes_of`: each single option that is
/// enough, those first that leave what is learned as it is; where none is, several together; where
/// even these are not enough, the one run that takes least. A smaller batch goes with more
/// accumulation, so that steps stay the same.
std::vector<LeanerRun> leaner_runs(
    const UptrainSettings& settings, double available,
    const std::function<double(const UptrainSettings& settings)>& bytes_of);

}  // namespace regroup

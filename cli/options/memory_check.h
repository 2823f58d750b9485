// Training that needs more memory than there is, refused before it starts.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "cli/options/command.h"
#include "cli/terminal/console.h"
#include "uptrain/run/memory_savings.h"

namespace regroup {

/// --memory-check on or off, which belongs to every command that trains.
class MemoryCheck {
 public:
  void add_to(Command command);

  /// Throws kEnvironment, or notes it where the check is off or nothing is to be done, if `needed`
  /// bytes are more than `available`; `leaner` says what would fit.
  void apply(double needed, double available, c10::Device device,
             const std::vector<LeanerRun>& leaner, bool dry_run, const Console& console) const;

 private:
  std::string mode_ = "on";
};

}  // namespace regroup

// Refuses training that needs more memory than is free, before it starts.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "cli/options/command.h"
#include "cli/terminal/console.h"
#include "uptrain/run/memory_savings.h"

namespace regroup {

/// A run that is compared with the available memory.
struct MemoryDemand {
  double needed = 0.0, available = 0.0;  ///< bytes
  c10::Device device;
  const std::vector<LeanerRun>& leaner;  ///< options that need less memory
};

/// The option --memory-check, on or off, of every command that trains.
class MemoryCheck {
 public:
  void add_to(Command command);

  /// If the demand exceeds the available memory, throws kEnvironment; if the check is off or in a
  /// dry run, prints a warning instead. The message lists the options that need less memory.
  void apply(const MemoryDemand& demand, bool dry_run, const Console& console) const;

 private:
  std::string mode_ = "on";
};

}  // namespace regroup

// Refuses training that needs more memory than is free, before it starts.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "cli/options/command.h"
#include "cli/terminal/console.h"
#include "uptrain/run/memory_savings.h"

namespace regroup {

/// The option --memory-check, on or off, of every command that trains.
class MemoryCheck {
 public:
  void add_to(Command command);

  /// If `needed` exceeds `available` (bytes), throws kEnvironment; if the check is off or in a dry
  /// run, prints a warning instead. The message lists `leaner`, options that need less memory.
  void apply(double needed, double available, c10::Device device,
             const std::vector<LeanerRun>& leaner, bool dry_run, const Console& console) const;

 private:
  std::string mode_ = "on";
};

}  // namespace regroup

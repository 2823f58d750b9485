// Refuses training that needs more memory than is free, before it starts.
#pragma once

#include <optional>
#include <string>

#include "cli/shell/command.h"
#include "cli/shell/console.h"
#include "uptrain/run/memory_choice.h"

namespace regroup {

/// The option --memory-check, on or off, of every command that trains.
class MemoryCheck {
 public:
  void add_to(Command command);

  /// If there is a shortage, throws kEnvironment; if the check is off or in a dry run, prints a
  /// warning instead. The message lists the options that need less memory.
  void apply(const std::optional<MemoryShortage>& shortage, bool dry_run,
             const Console& console) const;

 private:
  std::string mode_ = "on";
};

}  // namespace regroup

// Runs a program and reads what it prints.
#pragma once

#include <string>
#include <vector>

namespace regroup {

/// What `words`, a program's path and its arguments, prints to stdout. `variables` ("NAME=value")
/// are added to the environment; stderr is discarded. At most 1 MiB is returned. Empty if the
/// program cannot be run.
std::string output_of(std::vector<std::string> words, std::vector<std::string> variables = {});

}  // namespace regroup

// Finds missing shared libraries of a program without running it.
#pragma once

#include <filesystem>
#include <string>

namespace regroup {

/// The first shared library of `program` that the dynamic loader does not find in this environment.
/// Empty if it finds all of them, or if the loader cannot be run.
std::string missing_library(const std::filesystem::path& program);

}  // namespace regroup

// Whether a program's shared libraries are all there, found out without starting it.
#pragma once

#include <filesystem>
#include <string>

namespace regroup {

/// The first library that the dynamic loader does not find for `program`, in this environment;
/// empty where it finds all, or cannot be asked.
std::string missing_library(const std::filesystem::path& program);

}  // namespace regroup

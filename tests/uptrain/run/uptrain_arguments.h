// Arguments of `regroup uptrain` as a program, and its progress.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/temporary_directory.h"

namespace regroup {

/// A run of 300 steps on a tiny Llama with its data and output inside `directory`.
std::vector<std::string> uptrain_arguments(const TemporaryDirectory& directory,
                                           const std::string& output);

/// `arguments` followed by one or more others.
std::vector<std::string> with(std::vector<std::string> arguments, const std::string& more);
std::vector<std::string> with_all(std::vector<std::string> arguments,
                                  const std::vector<std::string>& more);

/// Waits until the run in the directory `run` has taken `steps` steps.
void wait_for_steps(const std::filesystem::path& run, std::ptrdiff_t steps);

/// Waits until `path` exists. A state is complete some steps after its own, so steps do not tell.
void wait_for_path(const std::filesystem::path& path);

}  // namespace regroup

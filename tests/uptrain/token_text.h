// Token files and short runs for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/error.h"
#include "tests/file_tree.h"
#include "uptrain/run/uptrain.h"

namespace regroup {

/// A learnable text: each id below `vocab` follows from the previous one, except for some noise.
std::vector<std::uint16_t> learnable_text(std::size_t length, std::uint16_t vocab);

/// Settings for a run of a few steps on a fixture of tests/golden, with training data and output
/// inside `directory`.
UptrainSettings short_run(const std::filesystem::path& directory, const std::string& fixture,
                          std::int64_t steps);

/// Plans and executes the run.
UptrainResult run_to_end(const UptrainSettings& settings, bool resume = false);

/// The same, but stopped after `stop_after` steps. Returns the Error that ends it.
Error run_until(const UptrainSettings& settings, std::int64_t stop_after, bool resume = false);

}  // namespace regroup

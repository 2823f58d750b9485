// The file of options that --config names: TOML, a table for each command.
#pragma once

#include <filesystem>

namespace CLI {
class App;
}

namespace regroup {

/// Gives the options of the program and its commands the values that the file has, save those that
/// the command line has given. Throws kBadInput for what is no regular file or larger than 16 KiB,
/// kUsage naming file and line for what is no TOML, an unknown name, a value of the wrong type and
/// one that its option refuses.
void apply_config_file(CLI::App& program, const std::filesystem::path& path);

}  // namespace regroup

// Reads options from the TOML file of --config, which has a table for each command.
#pragma once

#include <filesystem>

namespace CLI {
class App;
}

namespace regroup {

/// Sets the options of the program and its commands to the values in the file. Sections of commands
/// with ignore_config_file() are left unread. Options given on the
/// command line keep their values. Throws kBadInput if `path` is not a regular file or is larger
/// than 16 KiB, and kUsage with file and line for invalid TOML, an unknown name, a value of the
/// wrong type or a value that its option refuses.
void apply_config_file(CLI::App& program, const std::filesystem::path& path);

}  // namespace regroup

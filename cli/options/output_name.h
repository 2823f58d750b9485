// What the name of an output may end in.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>

namespace regroup {

/// Throws kUsage where `path` ends like a kind of file that is not about to be made: a directory
/// named x.gguf is meant by nobody. `what` is made, and may end in one of `endings`.
void check_output_name(const std::filesystem::path& path, std::string_view what,
                       std::initializer_list<std::string_view> endings);

/// The same for a directory, whose name may have none of these endings.
void check_directory_name(const std::filesystem::path& path);

}  // namespace regroup

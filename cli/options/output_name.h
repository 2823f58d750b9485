// Checks that the extension of an output fits what is written.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>

namespace regroup {

/// Throws kUsage if `path` has a known file extension that is not one of `endings`: a directory
/// named x.gguf is a mistake. `what` is the kind of output, for the message.
void check_output_name(const std::filesystem::path& path, std::string_view what,
                       std::initializer_list<std::string_view> endings);

/// The same for a directory, whose name may have none of the known file extensions.
void check_directory_name(const std::filesystem::path& path);

}  // namespace regroup

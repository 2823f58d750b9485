// The Python files that results carry.
#pragma once

#include <span>
#include <string_view>

namespace regroup {

struct LoaderFile {
  std::string_view name;  ///< such as "modeling_regroup_bloom.py"
  std::string_view text;
};

/// The .py files of formats/loaders/, which CMake embeds in the program.
std::span<const LoaderFile> embedded_loader_files();

/// These, and those that are made from rows of loader_table.h.
std::span<const LoaderFile> loader_files();

}  // namespace regroup

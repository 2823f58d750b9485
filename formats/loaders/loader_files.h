// The Python files of formats/loaders/, which CMake embeds in the program.
#pragma once

#include <span>
#include <string_view>

namespace regroup {

struct LoaderFile {
  std::string_view name;  ///< such as "modeling_regroup_bloom.py"
  std::string_view text;
};

std::span<const LoaderFile> loader_files();

}  // namespace regroup

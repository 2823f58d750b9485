#include "cli/shell/missing_library.h"

#include <string_view>

#include "cli/shell/child_output.h"

namespace regroup {

std::string missing_library(const std::filesystem::path& program) {
  constexpr std::string_view kMissing = " => not found";
  // As ldd does, this makes the loader print the program's libraries and not run it.
  const std::string list = output_of({program.string()}, {"LD_TRACE_LOADED_OBJECTS=1"});
  const std::size_t end = list.find(kMissing);
  if (end == list.npos) {
    return "";
  }
  const std::size_t begin = list.find_last_of("\t\n ", end - 1) + 1;  // 0 if none precedes it
  return list.substr(begin, end - begin);
}

}  // namespace regroup
